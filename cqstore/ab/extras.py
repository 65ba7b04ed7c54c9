"""The libraries that only a comparison needs, see the extra ``ab``."""

from importlib import import_module

from cqstore.store.errors import StoreConfigError

_MODULES = {"scipy": "scipy", "hdrh": "hdrhistogram", "jinja2": "jinja2"}


def need_extras() -> None:
    """Check that they are installed; called before a comparison or a report begins.

    Raises:
        StoreConfigError: one is missing.
    """
    for module, project in _MODULES.items():
        try:
            import_module(module)
        except ImportError as exc:
            raise StoreConfigError(f"this needs {project}: pip install 'cqstore[ab]'") from exc
