"""What is taken from a pasted kubeconfig, and what is refused with which words."""

import base64
import datetime as dt
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.kube.kubeconfig import MAX_BYTES, Credentials, KubeconfigRefused, parse_kubeconfig
from tests.support.pki import DAY, Authority, b64, kubeconfig

SERVER = "https://eu-1.example.invalid:6443"
NOW = dt.datetime.now(dt.UTC)
CA = Authority()
CLIENT = CA.issue("aifactory-portal", lasts=dt.timedelta(days=30))


def refused(text: str) -> KubeconfigRefused:
    with pytest.raises(KubeconfigRefused) as caught:
        parse_kubeconfig(text, now=NOW)
    return caught.value


def jwt(claims: dict[str, Any]) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part(claims)}.c2lnbmF0dXJl"


def test_a_token_and_an_authority() -> None:
    found = parse_kubeconfig(kubeconfig(SERVER + "/", ca=CA.pem), now=NOW)
    assert found == Credentials(server=SERVER, ca_data=CA.pem, token="token-of-a-service-account")
    assert found.expires_at is None


def test_a_client_certificate_ends_when_it_ends() -> None:
    user = {"client-certificate-data": b64(CLIENT.cert), "client-key-data": b64(CLIENT.key)}
    found = parse_kubeconfig(kubeconfig(SERVER, ca=CA.pem, user=user), now=NOW)
    assert (found.client_cert, found.client_key, found.token) == (CLIENT.cert, CLIENT.key, None)
    assert found.expires_at is not None
    assert abs(found.expires_at - NOW - dt.timedelta(days=30)) < dt.timedelta(minutes=5)


def test_a_token_that_is_a_jwt_ends_at_exp_and_the_first_end_counts() -> None:
    end = int((NOW + DAY).timestamp())
    user = {
        "token": jwt({"exp": end, "sub": "system:serviceaccount:aifactory:portal"}),
        "client-certificate-data": b64(CLIENT.cert),
        "client-key-data": b64(CLIENT.key),
    }
    found = parse_kubeconfig(kubeconfig(SERVER, user=user), now=NOW)
    assert found.expires_at == dt.datetime.fromtimestamp(end, dt.UTC)


@pytest.mark.parametrize("token", ["12345", "a.b.c", "a.e30.c", jwt({"exp": "soon"}), jwt({"exp": 1e40})])
def test_a_token_of_any_other_form_has_no_known_end(token: str) -> None:
    text = yaml.safe_dump(json.loads(kubeconfig(SERVER, user={"token": token}))).replace("'", "")
    found = parse_kubeconfig(text, now=NOW)
    assert (found.token, found.expires_at) == (token, None)


@pytest.mark.parametrize(
    "server",
    [
        "https://169.254.169.254",
        "https://[fe80::1]:6443",
        "https://[::ffff:169.254.169.254]",
        "https://0.0.0.0:6443",
        "https://224.0.0.1",
        "https://a\nb.example.invalid",
        "https://-.example.invalid",
        f"https://{'a' * 64}.example.invalid",
        f"https://x.example.invalid/{'p' * 400}",
    ],
)
def test_an_address_at_which_no_api_server_can_be_is_refused(server: str) -> None:
    assert refused(kubeconfig(server)).field.endswith(".cluster.server")


@pytest.mark.parametrize("name", [".x", "a b", "a" * 64, "a..b"])
def test_a_server_name_that_tls_can_not_expect_is_refused(name: str) -> None:
    config = json.loads(kubeconfig(SERVER))
    config["clusters"][0]["cluster"]["tls-server-name"] = name
    assert "tls-server-name" in str(refused(json.dumps(config)))


def test_the_context_that_is_current_is_taken() -> None:
    config = json.loads(kubeconfig(SERVER))
    config["clusters"].append({"name": "other", "cluster": {"server": "http://other", "proxy-url": "http://p"}})
    config["contexts"].append({"name": "y", "context": {"cluster": "other", "user": "u", "namespace": "n"}})
    assert parse_kubeconfig(json.dumps(config), now=NOW).server == SERVER
    del config["current-context"]
    error = refused(json.dumps(config))
    assert error.field == "current-context"
    assert "x, y" in str(error)
    config["contexts"].pop()
    assert parse_kubeconfig(json.dumps(config), now=NOW).server == SERVER


REFUSED_USER = {
    "exec": ({"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}, "runs a program"),
    "auth-provider": ({"name": "oidc"}, "runs a plug-in"),
    "client-certificate": ("/etc/pki/client.crt", "names a file"),
    "client-key": ("/etc/pki/client.key", "names a file"),
    "tokenFile": ("/var/run/token", "names a file"),
    "username": ("admin", "passwords"),
    "password": ("admin", "passwords"),
    "as": ("system:admin", "somebody else"),
    "as-groups": (["system:masters"], "somebody else"),
    "shiny-new-field": ("x", "not known"),
}


@pytest.mark.parametrize("field", REFUSED_USER)
def test_fields_of_the_user_that_are_refused(field: str) -> None:
    value, words = REFUSED_USER[field]
    error = refused(kubeconfig(SERVER, user={"token": "t", field: value}))
    assert error.field == f"users[u].user.{field}"
    assert words in str(error)
    assert str(error).rstrip().endswith((".", ")"))


REFUSED_CLUSTER = {
    "certificate-authority": ("/etc/pki/ca.crt", "names a file"),
    "proxy-url": ("http://proxy.example.invalid:3128", "proxy"),
    "insecure-skip-tls-verify": (True, "unverified"),
    "shiny-new-field": ("x", "not known"),
}


@pytest.mark.parametrize("field", REFUSED_CLUSTER)
def test_fields_of_the_cluster_that_are_refused(field: str) -> None:
    value, words = REFUSED_CLUSTER[field]
    error = refused(kubeconfig(SERVER, cluster={field: value}))
    assert error.field == f"clusters[c].cluster.{field}"
    assert words in str(error)


def test_fields_that_are_off_or_empty_are_no_matter() -> None:
    cluster = {"insecure-skip-tls-verify": False, "proxy-url": "", "certificate-authority": None}
    found = parse_kubeconfig(kubeconfig(SERVER, cluster=cluster, user={"token": "t", "exec": None}), now=NOW)
    assert found == Credentials(server=SERVER, token="t")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("http://eu-1.example.invalid:6443", "only https"),
        ("HTTP://eu-1.example.invalid", "only https"),
        ("file:///etc/passwd", "only https"),
        ("eu-1.example.invalid:6443", "only https"),
        ("https://", "not an address"),
        ("https://h:99999", "not an address"),
        ("https://[::1", "not an address"),
        ("https://user:pw@h", "password in the address"),
        ("https://h?x=1", "query"),
        ("", "not empty"),
    ],
)
def test_addresses_that_are_refused(server: str, words: str) -> None:
    error = refused(kubeconfig(server))
    assert error.field == "clusters[c].cluster.server"
    assert words in str(error)


def test_certificates_are_looked_at() -> None:
    stranger = Authority("another").issue("x")
    old = CA.issue("old", lasts=-DAY)

    def user(cert: str, key: str) -> dict[str, str]:
        return {"client-certificate-data": cert, "client-key-data": key}

    cases = {
        "does not belong": user(b64(CLIENT.cert), b64(stranger.key)),
        "no private key": user(b64(CLIENT.cert), b64(CLIENT.cert)),
        "no certificate": user(b64(CLIENT.key), b64(CLIENT.key)),
        "in base64": user("REDACTED!", b64(CLIENT.key)),
        "expired": user(b64(old.cert), b64(old.key)),
        "together": {"client-key-data": b64(CLIENT.key)},
    }
    for words, fields in cases.items():
        assert words in str(refused(kubeconfig(SERVER, user=fields))), words
    assert "no certificate" in str(refused(kubeconfig(SERVER, ca="not a PEM")))


def test_an_expired_token_and_no_credentials_at_all() -> None:
    past = int((NOW - DAY).timestamp())
    assert "expired" in str(refused(kubeconfig(SERVER, user={"token": jwt({"exp": past})})))
    assert "neither a token" in str(refused(kubeconfig(SERVER, user={})))
    assert "spaces" in str(refused(kubeconfig(SERVER, user={"token": "a b"})))


def test_yaml_that_would_grow_is_refused_before_it_does() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    assert "anchors and aliases" in str(refused(bomb))
    assert "nested too deep" in str(refused("[" * 5000 + "]" * 5000))
    assert "too many entries" in str(refused(json.dumps({"users": [0] * 30_000})))
    assert "larger than" in str(refused("#" * (MAX_BYTES + 1)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("just words", "not a mapping"),
        ("a: b: c", "not valid YAML in line 1"),
        ("!!python/object/apply:os.system [id]", "not a mapping"),
        ("kind: Secret\napiVersion: v1", "not a kubeconfig"),
        ("kind: Config\ncontexts: 5", "list of entries"),
        ("kind: Config\ncontexts: []", "no context"),
        ("kind: Config\ncurrent-context: z\ncontexts: []", "no entry named z"),
        ("kind: Config\ncontexts: [{name: x, context: [1]}]", "must be a mapping"),
        ("kind: Config\ncontexts: [{name: x, context: {cluster: c}}]", "must be a text"),
        ("\x00", "not valid YAML"),
    ],
)
def test_texts_that_are_no_kubeconfig(text: str, words: str) -> None:
    assert words in str(refused(text))


def test_no_refusal_quotes_a_secret() -> None:
    secret = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2VjcmV0"
    for text in (f"token: {secret}: x", kubeconfig(SERVER, user={"token": secret, "exec": {"command": secret}})):
        assert secret not in str(refused(text))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_is_pasted_is_refused_and_never_breaks(value: Any) -> None:
    refused(json.dumps(value))


@given(st.text(alphabet="kind: Config\n-[]{}&*!|>'\"#,x", max_size=200))
def test_whatever_yaml_is_pasted_is_refused_and_never_breaks(text: str) -> None:
    refused(text)


def test_credentials_are_stored_and_read_back_and_never_shown() -> None:
    found = Credentials(
        server=SERVER, ca_data=CA.pem, token="tok", client_cert="c", client_key="k", server_name="n", expires_at=NOW
    )
    assert Credentials.loads(found.dumps()) == found
    assert Credentials.loads(found.dumps()).digest == found.digest
    assert found.digest != Credentials(server=SERVER).digest
    assert "tok" not in f"{found} {found!r}"
