"""What all profiles share. The profile modules import this one and may only loosen what they name."""

from pathlib import Path
from typing import Any

from csp.constants import NONCE, NONE, SELF

from infra.health import CREDITED, WITHHELD, class_names, parse_classes
from portal.settings import env

BASE_DIR = Path(__file__).resolve().parents[2]
VERSION = "0.2.0"

# -- what must be given ------------------------------------------------------------------------------------
SECRET_KEY = env.required("AIF_SECRET_KEY", "a random text of 50 characters or more; it signs sessions")
SECRET_KEY_FALLBACKS = env.words("AIF_SECRET_KEY_FALLBACKS")
AIF_ENCRYPTION_KEYS = env.required(
    "AIF_ENCRYPTION_KEYS",
    "one or more Fernet keys, comma-separated, the newest first; they encrypt kubeconfigs "
    '(make one: python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())")',
).split(",")
AIF_TOKEN_PEPPER = env.required("AIF_TOKEN_PEPPER", "a random text of 32 characters or more; digests of tokens")
DATABASES: dict[str, dict[str, Any]] = {
    "default": env.database("AIF_DATABASE_URL", "postgresql://aif_app:...@host/database (the app role)")
    | {
        # Under ASGI each request has a thread of its own, so kept connections would pile up: 0. Workers: 60.
        "CONN_MAX_AGE": env.number("AIF_DB_MAX_AGE", 0),
        "CONN_HEALTH_CHECKS": True,
        "ATOMIC_REQUESTS": False,
    }
}
AIF_BROKER_URL = env.required("AIF_BROKER_URL", "the broker: redis://... (Valkey, Redis) or amqp://...")
ALLOWED_HOSTS = env.words("AIF_ALLOWED_HOSTS")
AIF_DB_APP_ROLE = env.text("AIF_DB_APP_ROLE", "aif_app")
AIF_DB_SYSTEM_ROLE = env.text("AIF_DB_SYSTEM_ROLE", "aif_system")

# -- what may be given -------------------------------------------------------------------------------------
DEBUG = False
AIF_PUBLIC_URL = env.text("AIF_PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")
AIF_LOCAL_ACCOUNTS = env.flag("AIF_LOCAL_ACCOUNTS", default=True)
"""Whether people may sign in with a local user name and password (break-glass, the demonstration)."""
AIF_CLUSTER_CONCURRENCY = env.number("AIF_CLUSTER_CONCURRENCY", 8, least=1)
"""How many reconciles may run against one cluster at a time."""
AIF_STOP_WRITES = env.flag("AIF_STOP_WRITES")
"""Emergency stop: nothing is written to any cluster while it is set."""
AIF_METRICS_TOKEN = env.text("AIF_METRICS_TOKEN")
"""The bearer token of whoever may read /metrics; with neither this nor AIF_METRICS_ALLOW nobody may."""
AIF_METRICS_ALLOW = env.networks("AIF_METRICS_ALLOW")
"""Networks (``127.0.0.1/32``) whose peers may read /metrics without a token; never a proxy's before the pages."""
AIF_METRICS_TENANTS = env.flag("AIF_METRICS_TENANTS")
"""Whether metrics may name tenants."""
AIF_METRICS_LISTEN = env.text("AIF_METRICS_LISTEN")
"""Where workers and watchers serve their own metrics: ``127.0.0.1:9464``; empty: nowhere."""
AIF_TENANT_SCHEDULERS = env.words("AIF_TENANT_SCHEDULERS", ("default-scheduler", "hami-scheduler"))
"""Schedulers that a tenant's pod may name; enforced by the cluster itself (infra.adapters.admission)."""
AIF_PLATFORM_IMAGES = env.words(
    "AIF_PLATFORM_IMAGES", ("ghcr.io/loft-sh", "docker.io/coredns", "docker.io/library/alpine")
)
"""Images of tenant clusters' own parts: free of a tenant's list of registries, in namespaces vc-… only."""
AIF_TENANT_RUNTIME_CLASSES = env.words("AIF_TENANT_RUNTIME_CLASSES", ("nvidia",))
"""Runtime classes that a tenant's pod may name."""
AIF_TENANT_PRIORITY_CLASSES = env.words("AIF_TENANT_PRIORITY_CLASSES")
"""Priority classes above 0 that a tenant's pod may name; a cluster's default class belongs here if it has one."""
AIF_TENANT_RESOURCES = env.words("AIF_TENANT_RESOURCES")
"""Extended resources beside NVIDIA's that a tenant's pod may ask for (``rdma/``: all that begin so); no quota of the
portal counts them."""
AIF_TENANT_TOLERATIONS = env.words(
    "AIF_TENANT_TOLERATIONS",
    (
        "nvidia.com/gpu",
        "amd.com/gpu",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
    ),
)
"""Keys of nodes' taints that a tenant's pod may tolerate, beside those that start with aifactory.dev/."""
AIF_WATCH_SETTLE_SECONDS = env.number("AIF_WATCH_SETTLE_SECONDS", 60)
"""How long after an instant a kubelet may still report what happened then; an hour is final only behind it."""
AIF_TELEMETRY_LAG_SECONDS = env.number("AIF_TELEMETRY_LAG_SECONDS", 120)
"""How long a sample may take until Prometheus has it: so far behind now metrics are read."""
AIF_STARTING_MINUTES = env.number("AIF_STARTING_MINUTES", 10)
"""How long the platform carries a pod that was bound to a node and has not started yet."""
AIF_HISTORY_DAYS = env.number("AIF_HISTORY_DAYS", 400, least=1)
"""How many days before the watch's begin a cluster's history is looked for in its Prometheus."""
AIF_HISTORY_QUERIES_PER_MINUTE = env.number("AIF_HISTORY_QUERIES_PER_MINUTE", 60, least=1)
"""How many questions a minute a run through a cluster's history may ask."""
AIF_OPENCOST_RAW_DAYS = env.number("AIF_OPENCOST_RAW_DAYS", 30)
"""For how many days the bodies of OpenCost's answers are kept; what was read of them stays."""
AIF_NAMESPACE_LABELS = env.words("AIF_NAMESPACE_LABELS", ("team", "tenant", "cost-center", "app.kubernetes.io/part-of"))
"""Labels of namespaces that are kept, beside those that a rule names; others are not stored."""
AIF_COST_CODE_LABEL = env.text("AIF_COST_CODE_LABEL")
"""The label of a pod or a namespace whose value is a cost code; empty: labels say nothing about cost codes."""
# Sign-in through an identity provider (docs/sign-in.md). Off while AIF_OIDC_ISSUER is not set.
AIF_OIDC_ISSUER = env.text("AIF_OIDC_ISSUER").rstrip("/")
"""The issuer as browsers know it, and as ``iss`` of its tokens: ``https://sso.example.com/realms/ai-factory``."""
AIF_OIDC_CLIENT_ID = env.text("AIF_OIDC_CLIENT_ID")
AIF_OIDC_CLIENT_SECRET = env.text("AIF_OIDC_CLIENT_SECRET")
AIF_OIDC_BACKCHANNEL_URL = env.text("AIF_OIDC_BACKCHANNEL_URL").rstrip("/") or AIF_OIDC_ISSUER
"""The issuer as this process reaches it; by default the issuer itself."""
AIF_OIDC_NAME = env.text("AIF_OIDC_NAME", "single sign-on")
"""What the button says: *Sign in with …*."""
AIF_OIDC_SCOPES = env.text("AIF_OIDC_SCOPES", "openid profile email")
AIF_OIDC_REQUIRED_ROLE = env.text("AIF_OIDC_REQUIRED_ROLE")
"""A realm role without which nobody gets in; empty: anybody of the realm does, and sees what the mappings give."""
AIF_OIDC_API_AUDIENCE = env.text("AIF_OIDC_API_AUDIENCE")
"""The audience that access tokens for the REST API carry; empty: such tokens are not accepted."""
AIF_OIDC_CLI_CLIENTS = env.words("AIF_OIDC_CLI_CLIENTS")
"""Clients (``azp``) whose access tokens the REST API accepts."""
AIF_OIDC_REFRESH_SECONDS = env.number("AIF_OIDC_REFRESH_SECONDS", 900, least=30)
AIF_OIDC_PRIVILEGED_REFRESH_SECONDS = env.number("AIF_OIDC_PRIVILEGED_REFRESH_SECONDS", 300, least=30)
"""How often a session's person is asked after at the identity provider; the second for platform roles and owners."""
AIF_OIDC_IDLE_SECONDS = env.number("AIF_OIDC_IDLE_SECONDS", 3600, least=60)
"""A session in which nobody did anything for so long ends; pages that load themselves do not count."""
AIF_OIDC_OUTAGE_SECONDS = env.number("AIF_OIDC_OUTAGE_SECONDS", 600)
"""How long sessions go on unchecked while the identity provider does not answer."""
# Tenant clusters (docs/tenant-clusters.md). Off while there is no endpoint and nobody names one at the request.
AIF_TENANT_CLUSTER_ENDPOINT = env.text("AIF_TENANT_CLUSTER_ENDPOINT")
"""Where a tenant cluster is reached: ``https://{tenant}.{cluster}.k8s.example.com``."""
AIF_TENANT_CLUSTER_SELF_SERVICE = env.flag("AIF_TENANT_CLUSTER_SELF_SERVICE")
"""Whether owners may ask for tenant clusters themselves; otherwise platform-admins do."""
AIF_TENANT_CLUSTER_NAMESPACE = env.text("AIF_TENANT_CLUSTER_NAMESPACE", "aifactory-tenants")
"""The namespace of a host cluster where Flux's objects and its service account are."""
AIF_TENANT_CLUSTER_INSTALLER = env.text("AIF_TENANT_CLUSTER_INSTALLER", "tenant-installer")
"""The service account there that Flux acts as."""
AIF_TENANT_CLUSTER_VALUES = env.mapping("AIF_TENANT_CLUSTER_VALUES")
"""The platform's own values of the chart, JSON. Keys of the portal, of the Pro edition and removed ones are refused."""
AIF_TENANT_CLUSTER_QUOTA = env.mapping("AIF_TENANT_CLUSTER_QUOTA")
"""Limits beside GPUs, JSON: ``{"requests.cpu": "64"}``; what is not named keeps the portal's default."""
AIF_TENANT_CLUSTER_NODE_LABELS = env.mapping("AIF_TENANT_CLUSTER_NODE_LABELS")
"""Labels of the host's nodes that a tenant sees, JSON; empty: the nodes on which its pods run."""
AIF_TENANT_CLUSTER_TOLERATIONS = env.words("AIF_TENANT_CLUSTER_TOLERATIONS")
"""Put on every pod of a tenant cluster: ``dedicated=tenant-gpu:NoSchedule``."""
AIF_TENANT_CLUSTER_INGRESS_CLASS = env.text("AIF_TENANT_CLUSTER_INGRESS_CLASS")
"""Publish endpoints by an Ingress of this class (TLS passed through); empty: the platform does it otherwise."""
AIF_TENANT_CLUSTER_OIDC_CA = env.text("AIF_TENANT_CLUSTER_OIDC_CA")
"""PEM of the identity provider's authority, where it is no public one (``AIF_TENANT_CLUSTER_OIDC_CA_FILE``)."""
AIF_TENANT_CLUSTER_TOKEN_HOURS = env.number("AIF_TENANT_CLUSTER_TOKEN_HOURS", 24, least=1)
"""The longest life of a robot's token, at most 24 hours."""
AIF_VCLUSTER_REPOSITORY = env.text("AIF_VCLUSTER_REPOSITORY", "https://charts.loft.sh")
"""Where the chart comes from: ``https://…``, or ``oci://…`` without the chart's name. Your mirror, if you have one."""
AIF_VCLUSTER_CHART = env.text("AIF_VCLUSTER_CHART", "vcluster")
AIF_VCLUSTER_IMAGE = env.text("AIF_VCLUSTER_IMAGE", "ghcr.io/loft-sh/vcluster-oss")
"""The control plane's image without a tag: the tag is the chart's version."""
AIF_VCLUSTER_VERSIONS = env.words("AIF_VCLUSTER_VERSIONS", ("1.34.0=0.34.7", "1.35.0=0.35.3"))
"""Versions on offer: Kubernetes=chart, the oldest first. An upgrade goes one minor version at a time."""
# Faults: classes of single XIDs (94:reset), and what a class does.
AIF_HEALTH_XIDS = parse_classes(env.words("AIF_HEALTH_XIDS"))
AIF_HEALTH_WITHHELD = class_names(env.words("AIF_HEALTH_WITHHELD"), WITHHELD)
AIF_HEALTH_CREDITED = class_names(env.words("AIF_HEALTH_CREDITED"), CREDITED)
# A restart so many minutes after a fault of its node is the fault's.
AIF_FAULT_RESTART_MINUTES = env.number("AIF_FAULT_RESTART_MINUTES", 10, least=1)
# Up to this amount (in the issuer's currency) a fault is credited without asking anybody.
AIF_FAULT_CREDIT_LIMIT = env.number("AIF_FAULT_CREDIT_LIMIT", 100)
AIF_DEMO = env.flag("AIF_DEMO")
"""A demonstration: pages say so, and `demo_seed` may run."""

# -- the application ---------------------------------------------------------------------------------------
ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"
ASGI_APPLICATION = "portal.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "csp",
    "django_filters",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "portal.kernel",
    "portal.accounts",
    "infra",
    "tenants",
    "billing",
    "portal.auth",
    "portal.home",
    "portal.demo",
    "portal.cli",
]

MIDDLEWARE = [
    "portal.kernel.metrics.web.MetricsMiddleware",
    "portal.kernel.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "portal.kernel.middleware.CleanInputMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "portal.auth.oidc.middleware.SessionRefreshMiddleware",
    "portal.kernel.middleware.ActorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.kernel.middleware.ProblemMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "portal.kernel.context.site",
                "portal.home.navigation.navigation",
                "infra.web.context.writing",
            ],
        },
    }
]

# -- people ------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = ["portal.accounts.backends.LocalBackend", "portal.auth.oidc.backend.OidcBackend"]
# What the library reads by itself; endpoints and keys come from the issuer's discovery document (portal.auth.oidc).
OIDC_RP_CLIENT_ID = AIF_OIDC_CLIENT_ID
OIDC_RP_CLIENT_SECRET = AIF_OIDC_CLIENT_SECRET
OIDC_RP_SCOPES = AIF_OIDC_SCOPES
OIDC_RP_SIGN_ALGO = "RS256"
OIDC_USE_PKCE = True
OIDC_PKCE_CODE_CHALLENGE_METHOD = "S256"
OIDC_USE_NONCE = True
OIDC_STATE_SIZE = OIDC_NONCE_SIZE = 32
OIDC_TIMEOUT = 5
OIDC_ALLOW_UNSECURED_JWT = False
OIDC_STORE_ACCESS_TOKEN = OIDC_STORE_ID_TOKEN = False
OIDC_AUTHENTICATION_CALLBACK_URL = "auth:oidc-callback"
LOGIN_REDIRECT_URL_FAILURE = "auth:login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "auth:login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "auth:login"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_NAME = "aif_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = True
SESSION_COOKIE_AGE = env.number("AIF_SESSION_SECONDS", 12 * 3600, least=300)
CSRF_COOKIE_NAME = "aif_csrf"
CSRF_COOKIE_SECURE = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = env.words("AIF_TRUSTED_ORIGINS")
CSRF_FAILURE_VIEW = "portal.kernel.problems.web.csrf_failure"

# -- security headers --------------------------------------------------------------------------------------
SECURE_SSL_REDIRECT = True
SECURE_HSTS_SECONDS = env.number("AIF_HSTS_SECONDS", 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
# The probes of an orchestrator speak plain HTTP to the process itself.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("AIF_BEHIND_TLS_PROXY") else None
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        # The identity provider must be allowed, or the redirect after POST /logout dies in the browser.
        "form-action": [SELF, *env.origins(AIF_OIDC_ISSUER), *env.words("AIF_FORM_ACTIONS")],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000

# -- language, time ----------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

# -- files -------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = env.text("AIF_STATIC_ROOT") or str(BASE_DIR / "build" / "static")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# -- API ---------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "portal.accounts.authentication.TokenAuthentication",
        "portal.accounts.authentication.BrowserSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["portal.kernel.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "portal.kernel.pagination.KeysetPagination",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "portal.kernel.problems.api.exception_handler",
    "COERCE_DECIMAL_TO_STRING": True,
    "DATETIME_FORMAT": "iso-8601",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "AI Factory Portal",
    "DESCRIPTION": "GPUs of many Kubernetes clusters as a service for many teams.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "SORT_OPERATIONS": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "portal.kernel.openapi.add_problem_responses",
    ],
    "ENUM_NAME_OVERRIDES": {
        "IssuerKindEnum": "billing.models.rates.Issuer.Kind",
        "ClaimRuleKindEnum": "infra.models.adoption.ClaimRule.Kind",
        "BillLineKindEnum": "billing.models.bills.BillLine.Kind",
        "MemberRoleEnum": "tenants.models.Member.Role",
        "RobotRoleEnum": "tenants.models.Robot.Role",
        "PeriodStateEnum": "billing.models.bills.BillingPeriod.State",
        "OpenLineStateEnum": "billing.api.serializers.OPEN_STATES",
        "RateSourceEnum": "billing.models.rates.Rate.Source",
        "RateResourceEnum": "billing.models.rates.Rate.Resource",
        "TenantStateEnum": "tenants.models.Tenant.State",
        "EndpointRoleEnum": "infra.models.endpoints.ClusterEndpoint.Role",
        "EvidenceSourceEnum": "infra.models.evidence.EvidenceSource",
    },
}

# -- logs: one JSON object a line, on standard error -------------------------------------------------------
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "portal.kernel.logs.JSONFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": env.text("AIF_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        "django.db.backends": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "kubernetes": {"level": "WARNING"},
        "uvicorn.access": {"level": "WARNING"},
    },
}
