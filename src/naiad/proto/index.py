"""What the descriptor set declares, by name: services, files, and which file declares a symbol.

Owns the search. Doesn't own the set itself (`pool`) nor who asks (server reflection).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf import descriptor_pb2


class DescriptorIndex:
    """The files of a serialized FileDescriptorSet. Names are full and have no dot in front."""

    def __init__(self, descriptor_set: bytes) -> None:
        self.services: list[str] = []
        self._files: dict[str, bytes] = {}
        self._dependencies: dict[str, list[str]] = {}
        self._file_of_symbol: dict[str, str] = {}
        self._messages: set[str] = set()
        self._file_of_extension: dict[tuple[str, int], str] = {}
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file:
            self._add_file(file)
        self.services.sort()

    def file(self, name: str) -> list[bytes] | None:
        """Return that file, serialized, and behind it all that it imports, each once; None for one that isn't known."""
        if name not in self._files:
            return None
        # The dict keeps the order and grows while it is walked through.
        names = [name]
        for each in names:
            names += [imported for imported in self._dependencies[each] if imported not in names]
        return [self._files[each] for each in names]

    def file_with_symbol(self, symbol: str) -> list[bytes] | None:
        """Return as `file` does the one that declares a service, method, message, field, oneof, enum, value or extension."""
        return self.file(self._file_of_symbol.get(symbol, ""))

    def file_with_extension(self, message: str, number: int) -> list[bytes] | None:
        """Return as `file` does the one that extends that message with a field of that number."""
        return self.file(self._file_of_extension.get((message, number), ""))

    def extension_numbers(self, message: str) -> list[int] | None:
        """Return the numbers of all extensions of a message, ascending; None for a message that isn't known."""
        if message not in self._messages:
            return None
        return sorted(number for extended, number in self._file_of_extension if extended == message)

    def _add_file(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._files[file.name] = file.SerializeToString()
        self._dependencies[file.name] = list(file.dependency)
        prefix = f"{file.package}." if file.package else ""
        for service in file.service:
            self.services.append(prefix + service.name)
        for symbol in self._symbols(file, prefix):
            self._file_of_symbol[symbol] = file.name

    def _symbols(self, file: descriptor_pb2.FileDescriptorProto, prefix: str) -> Iterator[str]:
        for service in file.service:
            yield prefix + service.name
            yield from (f"{prefix}{service.name}.{method.name}" for method in service.method)
        yield from _enum_symbols(file.enum_type, prefix)
        for extension in file.extension:
            yield from self._extension_symbols(extension, prefix, file.name)
        for message in file.message_type:
            yield from self._message_symbols(message, prefix, file.name)

    def _message_symbols(self, message: descriptor_pb2.DescriptorProto, prefix: str, file: str) -> Iterator[str]:
        name = prefix + message.name
        self._messages.add(name)
        yield name
        inner = f"{name}."
        yield from (inner + field.name for field in message.field)
        yield from (inner + oneof.name for oneof in message.oneof_decl)
        yield from _enum_symbols(message.enum_type, inner)
        for extension in message.extension:
            yield from self._extension_symbols(extension, inner, file)
        for nested in message.nested_type:
            yield from self._message_symbols(nested, inner, file)

    def _extension_symbols(self, extension: descriptor_pb2.FieldDescriptorProto, prefix: str, file: str) -> Iterator[str]:
        self._file_of_extension[extension.extendee.lstrip("."), extension.number] = file
        yield prefix + extension.name


def _enum_symbols(enums: Iterable[descriptor_pb2.EnumDescriptorProto], prefix: str) -> Iterator[str]:
    for enum in enums:
        yield prefix + enum.name
        # Protobuf's scope of a value is that of its enum; tools also ask for it within the enum.
        yield from (prefix + value.name for value in enum.value)
        yield from (f"{prefix}{enum.name}.{value.name}" for value in enum.value)
