"""Messages of Protobuf with a schema of a registry, as JSON.

protoc compiles a schema once; Google's library reads the bytes. A field that their schema has not
is an error: it is of another schema. docs/inputs.md has what becomes of each type.
"""

import json
import math
import re
import signal
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from shardpost.errors import ShardpostError, single_line
from shardpost.kafka.schema_registry import Schema

MOST_KNOWN = 200  # schemas
SECONDS, MAX_SHOWN = 300, 300
OWN = "shardpost_schema.proto"
# What may be imported without a reference: Confluent's, and google/type; protoc adds the rest.
_ALWAYS = (Path(__file__).with_name("imports"), Path(descriptor_pb2.__file__).parents[2])
_IMPORT = re.compile(r"(?:[\w-]{1,99}/){0,9}[\w.-]{1,99}\.proto", re.ASCII)
_SAID = re.compile(r"^(?:\S+\.proto:|E\d{4} ).*$", re.MULTILINE)  # of a schema, not of the machine
_CRASHED = (-signal.SIGABRT, -signal.SIGSEGV)
# Names in the JSON of one message, in characters: a few bytes may be of many fields with defaults.
MOST_NAMED = 1 << 24
# Bytes times fields of the widest type: two bytes may be a message, which has room for all fields.
MOST_SPACE = 1 << 28
MOST_BYTES, MOST_SCALE = 5, 1_000  # of an index, and of a decimal
_TEXTS = {f"google.protobuf.{one}" for one in ("Timestamp", "Duration", "FieldMask")}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
# Messages that are what their one field is.
_INNER = {f"google.protobuf.{one}Value": "value" for one in _WRAPPED}
_INNER |= {"google.protobuf.Struct": "fields", "google.protobuf.ListValue": "values"}
_ENCODED = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


@lru_cache(MOST_KNOWN)
def compiled(schema: Schema) -> bytes:
    """Return a schema behind all that it imports, as a FileDescriptorSet.

    ValueError if it is none of Protobuf; ShardpostError if protoc cannot tell.
    """
    texts = (*schema.referenced, (OWN, schema.text))
    if len(dict(texts)) < len(texts):
        raise ValueError("several schemas for one import")
    given = FileDescriptorSet()
    with TemporaryDirectory() as made:
        for name, text in texts:
            if not _IMPORT.fullmatch(name):
                raise ValueError(f"an import of {single_line(name, MAX_SHOWN)}")
            if (file := _descriptor(text)) is not None:
                file.name = name
                given.file.append(file)
            else:
                (path := Path(made, name)).parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        Path(made, "given").write_bytes(given.SerializeToString())
        found = _protoc(Path(made))
    try:
        Messages(found)
    except TypeError as error:  # of what Google's library for Python has not
        raise ValueError(single_line(str(error), MAX_SHOWN)) from None
    return found


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return a schema in base64, as Python's serializer registers it; None if it is a text."""
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None


def _protoc(folder: Path) -> bytes:
    made = folder / "made"
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", "--include_imports"]
    command += [f"--descriptor_set_in={folder / 'given'}", f"--descriptor_set_out={made}"]
    command += [*(f"-I{one}" for one in (folder, *_ALWAYS)), OWN]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ShardpostError(f"protoc: expected an end within {SECONDS} s, found none") from None
    said = done.stderr.decode(errors="replace").replace(f"{folder}/", "")
    errors = "; ".join(_SAID.findall(said)).replace(f"{OWN}:", "line ")
    if done.returncode in _CRASHED or (done.returncode == 1 and errors):
        raise ValueError(single_line(errors or "what protoc crashes of", MAX_SHOWN))
    if done.returncode:
        found = f"exit code {done.returncode}: {single_line(said, MAX_SHOWN)}"
        raise ShardpostError(f"protoc: expected a compiled schema, found {found}")
    return made.read_bytes()


class _Names:
    """How many characters of names may still follow."""

    def __init__(self) -> None:
        self.left = MOST_NAMED

    def taken(self, name: Any, more: int = 0) -> Any:
        """Return a name, or the number of one, if there is room for it, and for more."""
        self.left -= len(str(name)) + more
        if self.left < 0:
            raise ValueError(f"more than {MOST_NAMED} characters of names")
        return name


Convert = Callable[[Any, _Names], Any]


class _Type(NamedTuple):
    """How messages of a type become JSON: defaults by name, and fields by number."""

    defaults: dict[str, Any]
    size: int  # of the names of the defaults
    fields: dict[int, tuple[str, Convert]]


class Messages:
    """The messages of a schema, the last one of a FileDescriptorSet."""

    def __init__(self, files: bytes) -> None:
        self._pool = DescriptorPool()
        read = FileDescriptorSet.FromString(files).file
        for file in read:
            self._pool.Add(file)
        self._own = read[-1]
        self._widest = max(_widest(file.message_type) for file in read)
        self._classes: dict[tuple[int, ...], type[Message]] = {}
        self._types: dict[str, _Type] = {}

    def text(self, payload: bytes) -> str:
        """Return the JSON of the message that stands behind its indexes.

        Whatever the bytes are, the errors are of Python and Google's library.
        """
        if len(payload) * self._widest > MOST_SPACE:
            raise ValueError(f"{len(payload)} bytes, of messages with up to {self._widest} fields")
        indexes, begin = _indexes(payload)
        if (class_ := self._classes.get(indexes)) is None:
            found = self._pool.FindMessageTypeByName(_name(self._own, indexes))
            class_ = self._classes[indexes] = GetMessageClass(found)
        message = class_()
        message.ParseFromString(payload[begin:])
        if not message.IsInitialized():
            raise ValueError(f"nothing in {', '.join(message.FindInitializationErrors())}")
        return _ENCODED(self._value(message, _Names()))

    def _value(self, message: Message, names: _Names) -> Any:
        name = message.DESCRIPTOR.full_name
        if unknown := UnknownFieldSet(message):
            number = unknown[0].field_number
            raise ValueError(f"field {number}, which {name} has not, or not of that type")
        if name in _TEXTS:
            return message.ToJsonString()
        if (type_ := self._types.get(name)) is None:
            type_ = self._types[name] = self._type(message.DESCRIPTOR)
        made = dict(type_.defaults)
        names.taken("", type_.size)
        for field, value in message.ListFields():
            if field.number not in type_.fields:  # an extension
                type_.fields[field.number] = (f"[{field.full_name}]", self._field(field))
            own, convert = type_.fields[field.number]
            made[names.taken(own)] = convert(value, names)
        if name == "confluent.type.Decimal":
            return _decimal(message)
        if name == "google.protobuf.Value":
            return None if "null_value" in made else next(iter(made.values()), None)
        return made[_INNER[name]] if name in _INNER else made

    def _type(self, type_: Descriptor) -> _Type:
        fields = {one.number: (one.name, self._field(one)) for one in type_.fields}
        defaults = {one.name: self._default(one) for one in type_.fields if not one.has_presence}
        return _Type(defaults, sum(map(len, defaults)), fields)

    def _default(self, field: FieldDescriptor) -> Any:
        if field.is_repeated:
            return {} if _is_map(field) else []
        return self._one(field)(field.default_value, _Names())

    def _field(self, field: FieldDescriptor) -> Convert:
        if _is_map(field):
            of_value = self._one(field.message_type.fields_by_name["value"])
            return lambda value, names: {
                key if isinstance(key, str) else json.dumps(key): of_value(inner, names)
                for key, inner in value.items()
            }
        one = self._one(field)
        return (lambda value, names: [one(v, names) for v in value]) if field.is_repeated else one

    def _one(self, field: FieldDescriptor) -> Convert:
        match field.type:
            case FieldDescriptor.TYPE_MESSAGE | FieldDescriptor.TYPE_GROUP:
                return self._value
            case FieldDescriptor.TYPE_ENUM:
                known = {one.number: one.name for one in field.enum_type.values}
                return lambda value, names: names.taken(known.get(value, value))
            case FieldDescriptor.TYPE_BYTES:
                return lambda value, _: b64encode(value).decode()
            case FieldDescriptor.TYPE_FLOAT:
                return lambda value, _: _number(float(str(numpy.float32(value))))
            case FieldDescriptor.TYPE_DOUBLE:
                return lambda value, _: _number(value)
        return lambda value, _: value


def _widest(types: Iterable[DescriptorProto]) -> int:
    return max((max(len(one.field), _widest(one.nested_type)) for one in types), default=0)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _number(value: float) -> float | str:
    """Return a number, or the text of what is none in JSON."""
    return value if math.isfinite(value) else json.dumps(value)


def _decimal(message: Any) -> str:
    """Return the text of a number of Connect."""
    if abs(message.scale) > MOST_SCALE:
        raise ValueError(f"a decimal of scale {message.scale}")
    unscaled = int.from_bytes(message.value, signed=True)
    return f"{Decimal(f'{unscaled}E{-message.scale}'):f}"


def _indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a message's type, each within the one before, and where they end."""
    count, at = _zigzag(payload, 0)
    found = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        found.append(index)
    return (*found,) or (0,), at


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    """Return a number from 0 on, as Avro and Protobuf write signed ones, and where it ends."""
    number = 0
    for shift, byte in enumerate(payload[at : at + MOST_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80 and not number & 1:
            return number >> 1, at + shift + 1
    raise ValueError(f"no indexes of a message in bytes {payload[: at + MOST_BYTES].hex()}")


def _name(file: FileDescriptorProto, indexes: tuple[int, ...]) -> str:
    """Return the name of the type at these indexes."""
    names, types = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if index >= len(types):
            raise ValueError(f"message {indexes}, which the schema has not")
        if any(one.options.map_entry for one in types[: index + 1]):
            raise ValueError(
                f"message {indexes}: behind a map, whose entries not all writers count"
            )
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names)


messages = lru_cache(MOST_KNOWN)(Messages)  # of a schema that compiled() returned
