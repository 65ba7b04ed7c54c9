"""Extension of Griffe: attributes without labels that say nothing."""

import griffe

_OF_ALL = {"class-attribute", "instance-attribute"}
"""Labels that nearly every attribute has."""


class AttributeLabels(griffe.Extension):
    """Leaves out labels of attributes."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Leave out labels that say nothing."""
        attr.labels -= _OF_ALL
