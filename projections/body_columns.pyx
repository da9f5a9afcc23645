# cython: language_level=3, boundscheck=True, wraparound=False
"""Event bodies to columns, compiled: optional, and built by `make speedups`.

Every body is walked once: its encoding is checked, and the values that a plan names are taken. A
body is odd if it is anything but a map in the one permitted encoding, of the plan's version, with
the plan's fields in the plan's types. Odd bodies are only named; the ledger's own decoder decides
about them. So this module may call too many bodies odd, but it must take none that the decoder
refuses, and no value that differs: tests/projections/test_body_columns.py compares the two.

Source: docs/reference/ledger-format.md, "Body"; the MessagePack specification.
Trust: bodies are hostile. All memory is read and written through bounds-checked views.
I/O: none.
"""

import numpy as np

cdef enum:
    _LEVELS = 8  # of maps and lists
    _OTHERS = 32  # keys of a map that are not in the plan

    # What a column holds of a value: its code.
    _NULL = 0
    _VALUE = 1
    _MISSING = 2
    _WHOLE = 3  # an integer where a float may be

    # The types of values and columns.
    _NONE = -1
    _BOOL = 0
    _INT = 1  # 64 bits
    _SMALL = 2  # 32 bits
    _FLOAT = 3
    _TEXT = 4
    _ANY = 5  # as bytes

    # What a node of the plan is.
    _LEAF = 0
    _FIELDS = 1  # a map with known keys
    _LIST = 2
    _MAP = 3  # with any keys

_TYPES = {
    "BOOLEAN": _BOOL,
    "BIGINT": _INT,
    "INTEGER": _SMALL,
    "DOUBLE": _FLOAT,
    "VARCHAR": _TEXT,
    "JSON": _ANY,
}


class _OddError(Exception):
    pass


cdef class _Column:
    """The values of one field, in the order of the bodies."""

    cdef int type
    cdef bint nullable
    cdef Py_ssize_t count, kept  # kept: those of bodies that are not odd
    cdef unsigned char[::1] codes
    cdef long long[::1] values  # floats by their bits; of text and bytes, where they begin
    cdef long long[::1] ends  # of text and bytes

    def __cinit__(self, int type, bint nullable):
        self.type, self.nullable = type, nullable
        self.codes = np.empty(64, np.uint8)
        self.values = np.empty(64, np.int64)
        self.ends = np.empty(64, np.int64)

    cdef int add(self, unsigned char code, long long value, long long end) except -1:
        if self.count == self.codes.shape[0]:
            self.codes = np.concatenate([self.codes, self.codes])
            self.values = np.concatenate([self.values, self.values])
            self.ends = np.concatenate([self.ends, self.ends])
        self.codes[self.count] = code
        self.values[self.count] = value
        self.ends[self.count] = end
        self.count += 1
        return 0


cdef class Plan:
    """Which fields of a kind of event are taken.

    A field's path has keys, divided by dots; `*` is each element of a list, `**` each value of a
    map, and `**key` its key. A key with `?` behind it may be missing.
    """

    cdef readonly dict places  # path -> number of its column
    cdef readonly dict counted  # path of elements -> number of its counter
    cdef readonly list types
    cdef long long version
    cdef const unsigned char[::1] keys
    # Of each node: what it is; its column, its counter, its elements' node, its keys' column.
    cdef int[::1] shape, column, counter, each, names, first, behind
    # Of each known key, from a node's `first` to `behind`.
    cdef int[::1] key_at, key_end, child, optional

    def __init__(self, fields, long long version):
        """Take each field's (path, type, nullable); `version` is that of the events."""
        cdef int node, above
        nodes, marks = [{}], [{"shape": _FIELDS}]
        self.places, self.counted, self.types, self.version = {}, {}, [], version
        for path, type, nullable in [("v", "BIGINT", False), *fields]:
            if path in self.places:
                continue
            number = self.places[path] = len(self.types)
            self.types.append((_TYPES[type], nullable))
            node, parts = 0, path.split(".")
            for place, part in enumerate(parts):
                above = node
                if part.startswith("*"):
                    marks[above]["shape"] = _LIST if part == "*" else _MAP
                    elements = ".".join(parts[: place + 1]).removesuffix("key")
                    self.counted.setdefault(elements, len(self.counted))
                    marks[above]["counter"] = self.counted[elements]
                else:
                    marks[above]["shape"] = _FIELDS
                if part == "**key":
                    marks[above]["names"] = number
                    break
                if part not in nodes[above]:
                    nodes[above][part] = len(nodes)
                    nodes.append({})
                    marks.append({})
                node = nodes[above][part]
            else:
                marks[node]["column"] = number
        texts, children, optional, first, behind = [], [], [], [], []
        for known in nodes:
            first.append(len(children))
            for key, child in known.items():
                if not key.startswith("*"):
                    texts.append(key.removesuffix("?").encode())
                    children.append(child)
                    optional.append(key.endswith("?"))
            behind.append(len(children))
        ends = np.cumsum([0, *map(len, texts)])
        self.keys = b"".join(texts)
        self.key_at, self.key_end = _ints(ends[: len(texts)]), _ints(ends[1:])
        self.child, self.optional = _ints(children), _ints(optional)
        self.first, self.behind = _ints(first), _ints(behind)
        self.shape = _ints([mark.get("shape", _LEAF) for mark in marks])
        self.column = _ints([mark.get("column", -1) for mark in marks])
        self.counter = _ints([mark.get("counter", -1) for mark in marks])
        self.names = _ints([mark.get("names", -1) for mark in marks])
        self.each = _ints([known.get("*", known.get("**", -1)) for known in nodes])


def _ints(values):
    return np.array(values, np.int32)


cdef class Columns:
    """The fields of many bodies."""

    cdef Plan plan
    cdef bytes text
    cdef const unsigned char[::1] data
    cdef Py_ssize_t at, end  # of the body that is walked
    cdef list columns, counters
    cdef long long[::1] other_at, other_end  # the keys of open maps that are not in the plan
    cdef Py_ssize_t others
    cdef long long[::1] seen  # of each known key: the map that it was last in
    cdef long long maps
    cdef readonly list odd  # places of the bodies that are left out

    def __init__(self, Plan plan, bodies):
        self.plan = plan
        self.text = b"".join([*bodies, b" "])
        self.data = self.text
        self.columns = [_Column(type, nullable) for type, nullable in plan.types]
        self.counters = [_Column(_INT, False) for _ in plan.counted]
        self.other_at = np.empty(_LEVELS * _OTHERS, np.int64)
        self.other_end = np.empty(_LEVELS * _OTHERS, np.int64)
        self.seen = np.zeros(plan.child.shape[0], np.int64)
        self.odd = []
        cdef Py_ssize_t place, start = 0
        cdef _Column column, version = self.columns[plan.places["v"]]
        every = [*self.columns, *self.counters]
        for place, body in enumerate(bodies):
            self.at, self.end = start, start + len(body)
            start, self.others = self.end, 0
            try:
                self.map_of(0, 1)
                if self.at != self.end or version.values[version.count - 1] != plan.version:
                    raise _OddError
            except _OddError:
                self.odd.append(place)
                for column in every:
                    column.count = column.kept
            else:
                for column in every:
                    column.kept = column.count

    def codes(self, path):
        """Return what each value of a field is: 0 null, 1 a value, 2 missing, 3 an integer."""
        cdef _Column column = self.columns[self.plan.places[path]]
        return np.asarray(column.codes)[: column.count]

    def numbers(self, path):
        """Return the values of a field that is no text; floats by their bits."""
        cdef _Column column = self.columns[self.plan.places[path]]
        return np.asarray(column.values)[: column.count]

    def lengths(self, path):
        """Return how many elements there are in each list or map; -1 where it is missing."""
        cdef _Column column = self.counters[self.plan.counted[path]]
        return np.asarray(column.values)[: column.count]

    def texts(self, path):
        """Return a text field's offsets and bytes."""
        cdef _Column column = self.columns[self.plan.places[path]]
        cdef Py_ssize_t number, place, size = 0
        for number in range(column.count):
            if column.codes[number] == _VALUE:
                size += column.ends[number] - column.values[number]
        if size >= 2**31:
            raise OverflowError("more text than a column holds")
        offsets = np.zeros(column.count + 1, np.int32)
        text = np.empty(size, np.uint8)
        cdef int[::1] to_offsets = offsets
        cdef unsigned char[::1] to_text = text
        cdef int to = 0
        for number in range(column.count):
            if column.codes[number] == _VALUE:
                for place in range(column.values[number], column.ends[number]):
                    to_text[to] = self.data[place]
                    to += 1
            to_offsets[number + 1] = to
        return offsets, text

    def parts(self, path):
        """Return the bytes of a field that may be anything; None where it is null or missing."""
        cdef _Column column = self.columns[self.plan.places[path]]
        cdef Py_ssize_t number
        return [
            self.text[column.values[number] : column.ends[number]]
            if column.codes[number] == _VALUE
            else None
            for number in range(column.count)
        ]

    cdef int byte(self) except -1:
        if self.at >= self.end:
            raise _OddError
        self.at += 1
        return self.data[self.at - 1]

    cdef unsigned long long number(self, int size) except? 0xFFFFFFFFFFFFFFFF:
        cdef unsigned long long found = 0
        cdef int _
        if self.end - self.at < size:
            raise _OddError
        for _ in range(size):
            found = found << 8 | self.data[self.at]
            self.at += 1
        return found

    cdef Py_ssize_t length(self, int size, unsigned long long least) except -1:
        """Read a length of so many bytes, which a shorter form cannot hold."""
        cdef unsigned long long found = self.number(size)
        if found < least or found > <unsigned long long>(self.end - self.at):
            raise _OddError
        return <Py_ssize_t>found

    cdef Py_ssize_t chars(self) except -1:
        """Walk over text; return where its own bytes begin."""
        cdef int tag = self.byte()
        cdef Py_ssize_t size, place, first
        cdef unsigned char high = 0
        if 0xA0 <= tag <= 0xBF:
            size = tag - 0xA0
        elif tag == 0xD9:
            size = self.length(1, 32)
        elif tag == 0xDA:
            size = self.length(2, 1 << 8)
        elif tag == 0xDB:
            size = self.length(4, 1 << 16)
        else:
            raise _OddError
        if size > self.end - self.at:
            raise _OddError
        first = self.at
        for place in range(first, first + size):
            high |= self.data[place]
        self.at += size
        if high >= 0x80:
            try:
                self.text[first : first + size].decode("utf-8")
            except UnicodeDecodeError:
                raise _OddError from None
        return first

    cdef int value(self, Py_ssize_t node, int level) except -1:
        """Walk over a value; of a node below 0, nothing is taken."""
        if self.at >= self.end:
            raise _OddError
        cdef Py_ssize_t start = self.at
        cdef int tag = self.data[start], type = _NONE, shape = _LEAF
        cdef long long found = 0
        cdef unsigned long long number
        if 0xA0 <= tag <= 0xBF or 0xD9 <= tag <= 0xDB:
            type, found = _TEXT, self.chars()
        elif 0x80 <= tag <= 0x8F or tag == 0xDE or tag == 0xDF:
            shape = self.map_of(node, level + 1)
        elif 0x90 <= tag <= 0x9F or tag == 0xDC or tag == 0xDD:
            shape = self.list_of(node, level + 1)
        else:
            self.at += 1
            if tag == 0xCB:
                type, found = _FLOAT, <long long>self.number(8)
            elif tag < 0x80:
                type, found = _INT, tag
            elif tag == 0xC2 or tag == 0xC3:
                type, found = _BOOL, tag - 0xC2
            elif 0xCC <= tag <= 0xCF:
                number = self.number(1 << (tag - 0xCC))
                if number < (128 if tag == 0xCC else <unsigned long long>1 << (4 << (tag - 0xCC))):
                    raise _OddError
                # 2^63 and more fit nowhere but into JSON.
                type, found = _INT if number >> 63 == 0 else _NONE, <long long>number
                if type == _NONE and node >= 0 and self.is_taken(node):
                    raise _OddError
            elif 0xD0 <= tag <= 0xD3:
                found = self.negative(tag)
                type = _INT
            elif tag >= 0xE0:
                type, found = _INT, tag - 256
            elif tag != 0xC0:  # bytes, extensions, floats of 32 bits
                raise _OddError
        if node < 0:
            return 0
        if shape != self.plan.shape[node]:
            if self.plan.shape[node] != _LEAF:
                raise _OddError
        if self.plan.column[node] < 0:
            return 0
        cdef _Column column = self.columns[self.plan.column[node]]
        if tag == 0xC0:
            if not column.nullable:
                raise _OddError
            column.add(_NULL, 0, 0)
        elif column.type == _ANY:
            column.add(_VALUE, start, self.at)
        elif type == column.type:
            column.add(_VALUE, found, self.at)
        elif type == _INT and column.type == _FLOAT and -(1 << 53) <= found <= 1 << 53:
            column.add(_WHOLE, found, 0)
        elif type == _INT and column.type == _SMALL and -(1 << 31) <= found < 1 << 31:
            column.add(_VALUE, found, 0)
        else:
            raise _OddError
        return 0

    cdef bint is_taken(self, Py_ssize_t node) except -1:
        """Tell whether a node's value is taken as a number."""
        cdef _Column column
        if self.plan.column[node] < 0:
            return False
        column = self.columns[self.plan.column[node]]
        return column.type != _ANY

    cdef long long negative(self, int tag) except? -1:
        """Read a number below 0 that a shorter form cannot hold."""
        cdef int bits = 8 << (tag - 0xD0)
        cdef long long found = <long long>self.number(bits // 8)
        if bits == 64:
            if found >= -(<long long>1 << 31):
                raise _OddError
            return found
        found -= <long long>1 << bits
        if found < -(<long long>1 << (bits - 1)):
            raise _OddError  # it was not below 0
        if found >= (-32 if bits == 8 else -(<long long>1 << (bits // 2 - 1))):
            raise _OddError
        return found

    cdef int list_of(self, Py_ssize_t node, int level) except -1:
        """Walk over a list; return what it is in a plan."""
        cdef int tag = self.byte()
        cdef Py_ssize_t size, each = -1, _
        cdef _Column counter
        if tag == 0xDC:
            size = self.length(2, 16)
        elif tag == 0xDD:
            size = self.length(4, 1 << 16)
        else:
            size = tag - 0x90
        if level > _LEVELS:
            raise _OddError
        if node >= 0 and self.plan.shape[node] == _LIST:
            counter = self.counters[self.plan.counter[node]]
            counter.add(_VALUE, size, 0)
            each = self.plan.each[node]
        for _ in range(size):
            self.value(each, level)
        return _LIST

    cdef int map_of(self, Py_ssize_t node, int level) except -1:
        """Walk over a map; return what it is in a plan."""
        cdef int tag = self.byte(), shape = _LEAF
        cdef Py_ssize_t size, start, place, following, known, other, _
        cdef Py_ssize_t first = 0, behind = 0, each = -1, names = -1, others = self.others
        cdef long long own
        cdef _Column column
        if 0x80 <= tag <= 0x8F:
            size = tag - 0x80
        elif tag == 0xDE:
            size = self.length(2, 16)
        elif tag == 0xDF:
            size = self.length(4, 1 << 16)
        else:
            raise _OddError
        if level > _LEVELS:
            raise _OddError
        if node >= 0:
            shape = self.plan.shape[node]
            if shape == _FIELDS:
                first, behind = self.plan.first[node], self.plan.behind[node]
            elif shape == _MAP:
                column = self.counters[self.plan.counter[node]]
                column.add(_VALUE, size, 0)
                each, names = self.plan.each[node], self.plan.names[node]
        self.maps += 1
        own, following = self.maps, first
        for _ in range(size):
            start = self.chars()
            known = -1
            for other in range(behind - first):  # mostly the one behind the last
                place = following + other
                if place >= behind:
                    place -= behind - first
                if self.is_key(place, start):
                    known = place
                    break
            if known >= 0:
                if self.seen[known] == own:
                    raise _OddError
                self.seen[known] = own
                following = known + 1 if known + 1 < behind else first
                self.value(self.plan.child[known], level)
                continue
            if self.others - others >= _OTHERS:
                raise _OddError
            for other in range(others, self.others):
                if self.is_same(other, start):
                    raise _OddError
            self.other_at[self.others], self.other_end[self.others] = start, self.at
            self.others += 1
            if names >= 0:
                column = self.columns[names]
                column.add(_VALUE, start, self.at)
            self.value(each, level)
        self.others = others
        for place in range(first, behind):
            if self.seen[place] != own:
                if not self.plan.optional[place]:
                    raise _OddError
                self.miss(self.plan.child[place])
        return _MAP if shape == _MAP else _FIELDS

    cdef int miss(self, Py_ssize_t node) except -1:
        """Take a field, and those in it, as missing."""
        cdef _Column column
        cdef Py_ssize_t place
        if self.plan.column[node] >= 0:
            column = self.columns[self.plan.column[node]]
            column.add(_MISSING, 0, 0)
        if self.plan.counter[node] >= 0:
            column = self.counters[self.plan.counter[node]]
            column.add(_VALUE, -1, 0)
        for place in range(self.plan.first[node], self.plan.behind[node]):
            self.miss(self.plan.child[place])
        return 0

    cdef bint is_key(self, Py_ssize_t place, Py_ssize_t start) except -1:
        """Tell whether the text from `start` to here is this known key."""
        cdef Py_ssize_t at = self.plan.key_at[place], number
        if self.plan.key_end[place] - at != self.at - start:
            return False
        for number in range(self.at - start):
            if self.plan.keys[at + number] != self.data[start + number]:
                return False
        return True

    cdef bint is_same(self, Py_ssize_t other, Py_ssize_t start) except -1:
        """Tell whether the text from `start` to here is this earlier key."""
        cdef Py_ssize_t at = self.other_at[other], number
        if self.other_end[other] - at != self.at - start:
            return False
        for number in range(self.at - start):
            if self.data[at + number] != self.data[start + number]:
                return False
        return True
