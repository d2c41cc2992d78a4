"""Any ModelConfig, for property tests."""

from google.protobuf.descriptor import FieldDescriptor as Field
from hypothesis import strategies as st

from naiad.config import schema
from naiad.proto import message_class

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
FLOATS = st.floats(width=32, allow_nan=False)


def plain(field):
    """Values of one plain field."""
    limits = schema.integer_range(field)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if limits:
        return st.integers(*limits) | st.sampled_from(limits)
    return {
        Field.TYPE_BOOL: st.booleans(),
        Field.TYPE_STRING: TEXTS,
        Field.TYPE_FLOAT: FLOATS,
        Field.TYPE_DOUBLE: st.floats(allow_nan=False),
    }[field.type]


def fill(draw, message, depth=0):
    """Set some of the fields of a message, and of those in it."""
    fields = list(message.DESCRIPTOR.fields)
    chosen = (
        draw(st.lists(st.sampled_from(fields), max_size=6 if depth == 0 else 3, unique_by=lambda field: field.name))
        if fields
        else []
    )
    for field in chosen:
        target = getattr(message, field.name)
        count = draw(st.integers(0, 2))
        if schema.is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            for _ in range(count):
                if value.message_type is not None:
                    fill(draw, target[draw(plain(key))], depth + 1)
                else:
                    target[draw(plain(key))] = draw(plain(value))
        elif schema.is_repeated(field):
            for _ in range(count):
                if field.message_type is not None:
                    fill(draw, target.add(), depth + 1)
                else:
                    target.append(draw(plain(field)))
        elif field.message_type is not None:
            target.SetInParent()
            fill(draw, target, depth + 1)
        else:
            setattr(message, field.name, draw(plain(field)))


@st.composite
def configs(draw):
    config = message_class("inference.ModelConfig")()
    fill(draw, config)
    return config
