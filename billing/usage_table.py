"""SQL of the usage table: partitioned by month, which Django can't declare. Used by the first migration.

The runtime roles own no table and may create none, so they ask ``billing_usage_partition(month)``: it runs with the
owner's rights and can do that one thing. A partition can't be read by its own name: row-level security of the parent
would not hold there.
"""

from django.conf import settings

TABLE = "billing_usagerecord"

CREATE = """
CREATE SEQUENCE billing_usagerecord_seq AS bigint;
CREATE TABLE billing_usagerecord (
    hour timestamptz NOT NULL,
    seq bigint NOT NULL DEFAULT nextval('billing_usagerecord_seq'),
    slot timestamptz NOT NULL,
    revision integer NOT NULL DEFAULT 0 CHECK (revision >= 0),
    tenant_id uuid NULL REFERENCES tenants_tenant (id) DEFERRABLE INITIALLY DEFERRED,
    cluster_id uuid NOT NULL,
    allocation_id uuid NULL,
    node_id uuid NULL,
    namespace varchar(63) NOT NULL,
    deployment_id uuid NULL,
    cost_code varchar(60) NOT NULL,
    gpu_type_id uuid NULL,
    sharing varchar(10) NOT NULL,
    profile varchar(32) NOT NULL,
    bucket varchar(12) NOT NULL,
    share bigint NOT NULL,
    memory_mib bigint NULL,
    cores integer NULL,
    slices integer NULL,
    cpu_millicores bigint NOT NULL,
    host_memory_mib bigint NOT NULL,
    milliseconds bigint NOT NULL,
    charged bigint NOT NULL,
    physical bigint NOT NULL,
    source varchar(12) NOT NULL,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (hour, seq),
    CHECK (slot >= hour AND slot < hour + interval '1 hour'),
    CHECK (date_trunc('hour', hour, 'UTC') = hour)
) PARTITION BY RANGE (hour);
CREATE INDEX usage_record_tenant ON billing_usagerecord (tenant_id, hour);
CREATE INDEX usage_record_cluster ON billing_usagerecord (cluster_id, hour);
CREATE INDEX usage_record_seq ON billing_usagerecord USING brin (seq) WITH (pages_per_range = 32);
"""

DROP = """
DROP TABLE billing_usagerecord;
DROP SEQUENCE billing_usagerecord_seq;
"""

CREATE_FUNCTION = """
CREATE FUNCTION billing_usage_partition(month timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $body$
DECLARE
    first timestamptz := date_trunc('month', month, 'UTC');
    next timestamptz := first + interval '1 month';
    name text := 'billing_usagerecord_' || to_char(first, 'YYYY_MM');
BEGIN
    IF month < '2000-01-01' OR month >= '2200-01-01' THEN
        RAISE EXCEPTION 'no usage is kept for %', month USING ERRCODE = 'datetime_field_overflow';
    END IF;
    IF to_regclass(name) IS NOT NULL THEN
        RETURN;
    END IF;
    -- One maker at a time; attaching a finished table does not stop readers and writers of the others.
    PERFORM pg_advisory_xact_lock(hashtext('billing_usage_partition'));
    -- Asked of the catalogue itself: to_regclass may still answer from the cache that nobody has made the table.
    IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = 'public'::regnamespace) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE billing_usagerecord INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('REVOKE ALL ON %I FROM "{app}", "{system}"', name);
    EXECUTE format('ALTER TABLE billing_usagerecord ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                   name, first, next);
END
$body$;
REVOKE ALL ON FUNCTION billing_usage_partition(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION billing_usage_partition(timestamptz) TO "{app}", "{system}";
"""

DROP_FUNCTION = "DROP FUNCTION billing_usage_partition(timestamptz);"


def create_function() -> str:
    """The function with the names of the runtime roles."""
    return CREATE_FUNCTION.format(app=settings.AIF_DB_APP_ROLE, system=settings.AIF_DB_SYSTEM_ROLE)
