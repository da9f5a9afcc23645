"""What a user may do to a ledger on a PostgreSQL server: too much, or too little to append.

Whoever appends needs USAGE of the schema, SELECT on its three tables, and INSERT on entries and
tree_heads; UPDATE of tree_heads.note to add a witness's cosignature. Whoever may do more can remove
or exchange entries, or have statements of other users carried out as theirs.

Source: PostgreSQL 15, "Privileges", "Predefined Roles", "System Information Functions".
Trust: the server tells what its users may do.
I/O: the server.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import StorageError
from ledger.postgres_schema import quoted
from ledger.postgres_store import on_server

# A role counts if the user can act as it, whether or not its rights are inherited.
_EXTRA = """
    WITH roles AS (SELECT * FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER')),
    space AS (SELECT * FROM pg_namespace WHERE oid = to_regnamespace(?)::oid),
    tables AS (SELECT c.* FROM pg_class c JOIN space n ON c.relnamespace = n.oid
               WHERE c.relkind = 'r'),
    rights AS (
        SELECT t.relname, r.oid AS role, t.oid AS relation, p.name
        FROM tables t CROSS JOIN roles r CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'),
            ('DELETE'), ('TRUNCATE'), ('REFERENCES'), ('TRIGGER')) AS p (name)
        WHERE NOT pg_has_role(r.oid, t.relowner, 'USAGE'))
    SELECT 1, 'is a superuser' FROM roles WHERE rolsuper
    UNION SELECT 2, 'may manage roles (CREATEROLE)' FROM roles WHERE rolcreaterole
    UNION SELECT 2, 'acts as ' || rolname FROM roles WHERE rolname IN
        ('pg_execute_server_program', 'pg_write_server_files', 'pg_signal_backend')
    UNION SELECT 3, 'owns the database' FROM roles JOIN pg_database d ON d.datdba = roles.oid
        WHERE d.datname = current_database()
    UNION SELECT 4, 'owns the schema' FROM roles JOIN space ON nspowner = roles.oid
    UNION SELECT 5, 'owns the table ' || relname FROM roles JOIN tables ON relowner = roles.oid
    UNION SELECT 6, 'CREATE on the schema' FROM roles JOIN space
        ON NOT pg_has_role(roles.oid, nspowner, 'USAGE')
        AND has_schema_privilege(roles.oid, space.oid, 'CREATE')
    UNION SELECT 7, name || ' on ' || relname FROM rights
        WHERE name <> 'SELECT' AND NOT (name = 'INSERT' AND relname IN ('entries', 'tree_heads'))
        AND NOT (name = 'UPDATE' AND relname = 'tree_heads')
        AND CASE WHEN name IN ('INSERT', 'UPDATE', 'REFERENCES')
            THEN has_any_column_privilege(role, relation, name)
            ELSE has_table_privilege(role, relation, name) END
    UNION SELECT 8, 'UPDATE on tree_heads.' || attname FROM rights JOIN pg_attribute
        ON attrelid = relation AND attnum > 0 AND NOT attisdropped
        WHERE name = 'UPDATE' AND relname = 'tree_heads' AND attname <> 'note'
        AND has_column_privilege(role, relation, attnum, 'UPDATE')
    UNION SELECT 9, 'may grant ' || name || ' on ' || relname FROM rights
        WHERE has_table_privilege(role, relation, name || ' WITH GRANT OPTION')
    ORDER BY 1, 2"""
_MISSING = """
    SELECT name || ' on ' || relname FROM pg_class CROSS JOIN (VALUES ('SELECT'), ('INSERT'))
        AS p (name)
    WHERE relnamespace = to_regnamespace(?)::oid AND relkind = 'r'
        AND (name = 'SELECT' OR relname <> 'meta')
        AND NOT has_table_privilege(session_user, pg_class.oid, name)
    ORDER BY 1"""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What a user may do beyond appending and cosigning, and what it lacks for appending."""

    user: str
    needless: tuple[str, ...]
    missing: tuple[str, ...]


def read_rights(path: Path) -> Rights:
    """Ask the server that this file names about the user who connects; raise StorageError."""
    with closing(on_server(path, given=None)) as store:
        if not store.begun():
            raise StorageError(f"{path}: there is no ledger in {store.settings}; check the names")
        schema = quoted(store.settings.schema)
        with store.transaction(write=False) as rows:
            extra = rows.execute(_EXTRA, (schema,)).fetchall()
            if extra and extra[0][0] == 1:  # all else follows
                extra = extra[:1]
            missing = rows.execute(_MISSING, (schema,)).fetchall()
            (user,) = rows.execute("SELECT session_user::text").fetchone() or ("",)
    return Rights(
        user=user,
        needless=tuple(dict.fromkeys(text for _, text in extra)),
        missing=tuple(text for (text,) in missing),
    )
