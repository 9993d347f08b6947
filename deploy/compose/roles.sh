#!/usr/bin/env bash
# On an empty database: the owner (migrations), the system role (reads across tenants, cannot log in) and the app role
# (all processes; row-level security holds for it). See docs/install.md.
set -euo pipefail
owner=$(</run/secrets/owner_password)
app=$(</run/secrets/app_password)
psql -v ON_ERROR_STOP=1 -v owner="$owner" -v app="$app" --username "${POSTGRES_USER:-postgres}" <<'SQL'
CREATE ROLE aif_owner LOGIN PASSWORD :'owner';
CREATE ROLE aif_system NOLOGIN BYPASSRLS;
CREATE ROLE aif_app LOGIN NOINHERIT PASSWORD :'app';
GRANT aif_system TO aif_app;
CREATE DATABASE aif OWNER aif_owner;
REVOKE ALL ON DATABASE aif FROM PUBLIC;
GRANT CONNECT, TEMPORARY ON DATABASE aif TO aif_app;
SQL
