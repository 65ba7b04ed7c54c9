"""Extension of Griffe: a class has the name by which ``cqstore`` exports it.

Where the compiled core has a class, Python has its description under another name: in
``cqstore.store.record.message`` ``Message`` is ``PyMessage`` for a type checker.
"""

import griffe

_OF_ALL = {"class-attribute", "instance-attribute"}
"""Labels that nearly every attribute has."""


class PublicNames(griffe.Extension):
    """Replaces the public name of a class by the class itself."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Leave out labels that say nothing."""
        attr.labels -= _OF_ALL

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: object) -> None:
        """Rename classes once ``cqstore``, has been read with all below it."""
        if pkg.name != "cqstore":
            return
        for exported in [one for one in pkg.members.values() if isinstance(one, griffe.Alias)]:
            place, name = exported.target_path.rsplit(".", 1)
            if not place.startswith("cqstore.store."):
                continue  # what the package itself uses
            module = loader.modules_collection[place]
            found = module.members[name]
            if isinstance(found, griffe.Attribute) and isinstance(found.value, griffe.ExprName):
                described = loader.modules_collection[found.value.canonical_path]
                described.name = name
                module.set_member(name, described)
