"""What the server's catalogue says about one schema, as a set that two schemas can be compared by.

``alembic check`` knows predicates and CHECKs by name only; here the server prints each definition itself.
"""

from sqlalchemy import Engine, func, select, text

Fingerprint = set[tuple[str, str, str]]

# The search_path holds the schema alone, so the server leaves its name out of every definition. The order of columns is
# left out on purpose (one added later stands last), and so are NOT NULLs as constraints: only PostgreSQL 18 has those.
CATALOGUE = """
WITH ours AS (
    SELECT c.* FROM pg_class c
    WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)
      AND c.relname NOT IN ('alembic_version', 'alembic_version_pkc')
)
SELECT 'relation', relname,
       concat_ws(' ', relkind, relpersistence, relrowsecurity, coalesce(array_to_string(reloptions, ','), '-'))
FROM ours
UNION ALL
SELECT 'column', relname || '.' || attname,
       concat_ws(' ', format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'not null' END,
                 'default ' || pg_get_expr(adbin, adrelid), 'identity ' || nullif(attidentity::text, ''),
                 'generated ' || nullif(attgenerated::text, ''), 'collation ' || nullif(attcollation, 0)::text)
FROM ours
JOIN pg_attribute a ON a.attrelid = ours.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relkind IN ('r', 'p', 'v', 'm', 'f')
UNION ALL
SELECT 'constraint', relname || '.' || conname,
       concat_ws(' ', pg_get_constraintdef(k.oid), CASE WHEN NOT convalidated THEN 'not valid' END)
FROM ours JOIN pg_constraint k ON conrelid = ours.oid
WHERE contype <> 'n'
UNION ALL
SELECT 'index', relname,
       concat_ws(' ', pg_get_indexdef(i.indexrelid, 0, true),
                 CASE WHEN NOT (indisvalid AND indisready) THEN 'INVALID' END)
FROM ours JOIN pg_index i ON i.indexrelid = ours.oid
UNION ALL
SELECT 'sequence', relname,
       concat_ws(' ', format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
                 'of ' || (SELECT refobjid::regclass || '.' || attname
                           FROM pg_depend
                           JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
                           WHERE objid = ours.oid AND classid = 'pg_class'::regclass AND deptype IN ('a', 'i')))
FROM ours JOIN pg_sequence ON seqrelid = ours.oid
UNION ALL
SELECT 'trigger', relname || '.' || tgname, pg_get_triggerdef(t.oid, true)
FROM ours JOIN pg_trigger t ON tgrelid = ours.oid AND NOT tgisinternal
UNION ALL
SELECT 'function', proname, pg_get_function_identity_arguments(oid)
FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)
UNION ALL
SELECT 'type', typname, typtype::text
FROM pg_type
WHERE typnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema) AND typtype IN ('d', 'e', 'r')
"""


def fingerprint(engine: Engine, schema: str) -> Fingerprint:
    """Every table, column, constraint, index, sequence, trigger, function and type of the schema, its name left out.

    Alembic's own table of versions does not count, so an emptied schema gives ``set()``.
    """
    with engine.begin() as connection:
        path = '"' + schema.replace('"', '""') + '"'
        connection.execute(select(func.set_config("search_path", path, True)))
        rows = connection.execute(text(CATALOGUE), {"schema": schema})
        return {(kind, name, definition) for kind, name, definition in rows}
