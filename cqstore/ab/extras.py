"""The libraries of the extra ``ab``, which only comparisons need."""

from importlib import import_module

from cqstore.store.errors import StoreConfigError

_MODULES = {"scipy": "scipy", "hdrh": "hdrhistogram", "jinja2": "jinja2"}


def need_extras() -> None:
    """Check that all libraries of the extra ``ab`` are installed.

    Raises:
        StoreConfigError: a library is missing.
    """
    for module, project in _MODULES.items():
        try:
            import_module(module)
        except ImportError as exc:
            raise StoreConfigError(f"this needs {project}: pip install 'cqstore[ab]'") from exc
