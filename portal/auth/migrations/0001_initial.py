import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import portal.kernel.ids


class Migration(migrations.Migration):
    initial = True
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            name="SpentLogoutToken",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("iss", models.CharField(max_length=400)),
                ("jti", models.CharField(max_length=255)),
                ("used_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("iss", "jti"), name="spent_logout_token_unique")],
            },
        ),
        migrations.CreateModel(
            name="OidcSession",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("session_digest", models.CharField(max_length=64, unique=True)),
                ("iss", models.CharField(max_length=400)),
                ("sub", models.CharField(max_length=255)),
                ("sid", models.CharField(blank=True, help_text="The provider's name of the session.", max_length=255)),
                ("refresh_ciphertext", models.BinaryField(default=b"")),
                (
                    "id_token_ciphertext",
                    models.BinaryField(default=b"", help_text="The hint that ends the provider's session."),
                ),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "confirmed_at",
                    models.DateTimeField(help_text="When the provider last said that the session goes on."),
                ),
                ("next_refresh_at", models.DateTimeField()),
                (
                    "active_at",
                    models.DateTimeField(help_text="When the person last did something; polling does not count."),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="oidc_sessions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["iss", "sid"], name="oidc_session_sid"),
                    models.Index(fields=["iss", "sub"], name="oidc_session_sub"),
                ],
            },
        ),
    ]
