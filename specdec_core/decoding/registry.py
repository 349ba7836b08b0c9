"""Drafters by the method name of their options."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from specdec_core.config.base import Record
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import Drafter, DrafterNeeds
from specdec_core.errors import ConfigError

ConfigT = TypeVar("ConfigT", bound=Record)
DrafterT = TypeVar("DrafterT", bound="DrafterClass")


class DrafterClass(Protocol):
    """What is registered: a class made from options and context that can say its needs first."""

    def __call__(self, config: Any, context: DrafterContext) -> Drafter:
        """Return a new drafter."""
        ...

    @staticmethod
    def needs_for(config: Any) -> DrafterNeeds:
        """Return the needs of a drafter with these options; nothing is loaded."""
        ...


class DrafterRegistry:
    """Makes drafters from their options; a method is registered once, where it is written."""

    def __init__(self) -> None:
        self._classes: dict[str, tuple[type[Record], DrafterClass]] = {}

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the registered methods, sorted."""
        return tuple(sorted(self._classes))

    def register(self, config_class: type[ConfigT]) -> Callable[[DrafterT], DrafterT]:
        """Return the class decorator that files a drafter under the `method` of `config_class`.

        The decorated class is called with one `config_class` object and a `DrafterContext`.

        Raises:
            ConfigError: if `config_class` has no method name or the name is taken.
        """
        method_field = config_class.model_fields.get("method")
        if method_field is None or not isinstance(method_field.default, str):
            raise ConfigError(
                f"{config_class.__name__} has no default for 'method': give the options class a "
                'field such as method: Literal["name"] = "name"'
            )
        method = method_field.default

        def add(drafter_class: DrafterT) -> DrafterT:
            if method in self._classes:
                raise ConfigError(f"drafter method {method!r} is registered twice: rename one")
            self._classes[method] = (config_class, drafter_class)
            return drafter_class

        return add

    def make(self, config: Record, context: DrafterContext | None = None) -> Drafter:
        """Return a new drafter for its options.

        Args:
            config: Options of a registered method.
            context: What it may use beside them; None for methods that live on tokens alone.

        Raises:
            ConfigError: if no drafter is registered for these options, or it needs more context.
        """
        return self._find(config)(config, context or DrafterContext())

    def needs(self, config: Record) -> DrafterNeeds:
        """Return what a drafter with these options asks of the decode loop; loads nothing.

        Raises:
            ConfigError: if no drafter is registered for these options.
        """
        return self._find(config).needs_for(config)

    def _find(self, config: Record) -> DrafterClass:
        method = getattr(config, "method", type(config).__name__)
        config_class, drafter_class = self._classes.get(method, (None, None))
        if config_class is None or drafter_class is None or not isinstance(config, config_class):
            near = get_close_matches(method, self.methods) or list(self.methods)
            raise ConfigError(
                f"no drafter is registered for method {method!r} with options "
                f"{type(config).__name__}: did you mean {' or '.join(near) or 'to register one'}?"
            )
        return drafter_class


DRAFTERS = DrafterRegistry()
register = DRAFTERS.register


def make_drafter(config: Record, context: DrafterContext | None = None) -> Drafter:
    """Return a new drafter of a registered method; see `DrafterRegistry.make`."""
    return DRAFTERS.make(config, context)
