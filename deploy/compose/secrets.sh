#!/usr/bin/env bash
# Makes the secrets of the compose file once, in ./secrets (or the folder given). What is there already stays: another
# encryption key could read no stored kubeconfig, another password opens no existing database.
set -euo pipefail
folder=${1:-$(dirname "$0")/secrets}
umask 077
mkdir -p "$folder"
# The files can be read by everybody who gets here; so nobody else does, also into a folder that was there before.
chmod 700 "$folder"

once() {  # once NAME COMMAND…: the command's output, unless the file is there
  local file=$folder/$1
  shift
  [[ -s $file ]] || "$@" > "$file.new"
  [[ -s $file ]] || mv "$file.new" "$file"
  # Compose shows a file with its mode: the image's user, who owns nothing here, must be able to read it.
  chmod 444 "$file"
}
random() { openssl rand -hex 32; }
fernet() { openssl rand -base64 32 | tr '+/' '-_'; }
text() { printf '%s\n' "$1"; }

once secret_key random
once encryption_keys fernet
once token_pepper random
once postgres_password random
once owner_password random
once app_password random
once broker_password random
once database_url text "postgresql://aif_app:$(<"$folder/app_password")@postgres:5432/aif"
once owner_database_url text "postgresql://aif_owner:$(<"$folder/owner_password")@postgres:5432/aif"
once broker_url text "redis://:$(<"$folder/broker_password")@valkey:6379/0"
echo "Secrets are in $folder. Keep a copy of encryption_keys and token_pepper apart from the database's backups."
