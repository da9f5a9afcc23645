"""A ledger's tables on a PostgreSQL server: how they are made, named and checked.

Our statements find no names but PostgreSQL's own (`search_path`), and name the ledger's tables with
their schema: whatever else somebody makes there or in a temporary schema is never carried out.

Source: docs/reference/ledger-format.md, "PostgreSQL"; PostgreSQL 15, "Writing SECURITY DEFINER
Functions Safely" for the search path, "System Catalogs".
I/O: none; statements for a connection.
"""

import re
from functools import lru_cache

SEARCH_PATH = "SET search_path = pg_catalog, pg_temp"  # pg_temp would come first if left out
_NAMED = re.compile(r"\b(FROM|INTO|UPDATE|TABLE|COPY) (meta|entries|tree_heads)\b")

TABLES = (
    "CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL)",
    "CREATE TABLE entries (idx bigint PRIMARY KEY, stream_id bytea NOT NULL,"
    " stream_version bigint NOT NULL, name text NOT NULL, entry bytea NOT NULL,"
    " UNIQUE (stream_id, stream_version))",
    "CREATE TABLE tree_heads (size bigint PRIMARY KEY, note text NOT NULL, edge bytea NOT NULL)",
    "COMMENT ON TABLE meta IS 'a ledger of Proctor, version 1'",
)
MADE = [  # what FOUND finds where these were made
    "comment a ledger of Proctor, version 1",
    "entries PRIMARY KEY (idx)",
    "entries UNIQUE (stream_id, stream_version)",
    "entries.entry bytea true",
    "entries.idx bigint true",
    "entries.name text true",
    "entries.stream_id bytea true",
    "entries.stream_version bigint true",
    "meta PRIMARY KEY (key)",
    "meta.key text true",
    "meta.value text true",
    "tree_heads PRIMARY KEY (size)",
    "tree_heads.edge bytea true",
    "tree_heads.note text true",
    "tree_heads.size bigint true",
]
# Anything else in the schema adds a row: a relation, column, constraint, trigger, rule, policy,
# function or operator, an index that computes or leaves out something, and a table that inherits.
# So do tables that are not written to the server's log: a crash would empty them.
FOUND = """
    WITH space AS (SELECT to_regnamespace(%s)::oid AS oid),
    tables AS (SELECT c.* FROM pg_class c JOIN space ON c.relnamespace = space.oid
               WHERE c.relkind NOT IN ('i', 't'))
    SELECT t.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        || ' ' || a.attnotnull
        FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid
        WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT t.relname || ' ' || pg_get_constraintdef(k.oid)
        FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid WHERE k.contype <> 'n'
    UNION ALL SELECT t.relname || ' is no plain table' FROM tables t
        WHERE t.relkind <> 'r' OR t.relpersistence <> 'p' OR t.relrowsecurity OR t.relispartition
    UNION ALL SELECT t.relname || ' trigger ' || g.tgname
        FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid WHERE NOT g.tgisinternal
    UNION ALL SELECT t.relname || ' rule ' || r.rulename
        FROM tables t JOIN pg_rewrite r ON r.ev_class = t.oid
    UNION ALL SELECT t.relname || ' policy ' || p.polname
        FROM tables t JOIN pg_policy p ON p.polrelid = t.oid
    UNION ALL SELECT t.relname || ' inherited by ' || h.inhrelid
        FROM tables t JOIN pg_inherits h ON h.inhparent = t.oid
    UNION ALL SELECT t.relname || ' index ' || i.indexrelid
        FROM tables t JOIN pg_index i ON i.indrelid = t.oid
        WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
    UNION ALL SELECT 'function ' || f.proname
        FROM pg_proc f JOIN space ON f.pronamespace = space.oid
    UNION ALL SELECT 'operator ' || o.oprname
        FROM pg_operator o JOIN space ON o.oprnamespace = space.oid
    UNION ALL SELECT 'comment ' || coalesce(obj_description(t.oid, 'pg_class'), '')
        FROM tables t WHERE t.relname = 'meta'"""
# Whether there may be a trigger, rule, policy or child, by flags: FOUND is asked only then. Who has
# written to a table keeps others from changing it until the commit.
ODD = """
    SELECT bool_or(c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relrowsecurity
        OR c.relhastriggers OR c.relhasrules OR c.relhassubclass)
    FROM pg_class c WHERE c.oid IN (to_regclass(?), to_regclass(?))"""
INSERT_HEAD = (
    "INSERT INTO tree_heads VALUES (?, ?, ?) RETURNING (" + ODD + "), note,"  # noqa: S608 - it is ours
    " (SELECT idx FROM entries ORDER BY idx DESC LIMIT 1),"
    " (SELECT entry FROM entries ORDER BY idx DESC LIMIT 1)"
)


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=256)
def qualified(statement: str, schema: str) -> bytes:
    """Return a statement with `%s` for each `?`, and the schema before each of our tables."""
    space = quoted(schema).replace("%", "%%").replace("\\", "\\\\")
    return _NAMED.sub(rf"\1 {space}.\2", statement.replace("?", "%s")).encode()
