"""Drafters by the method name of their options."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from specdec_core.config.base import Record
from specdec_core.decoding.drafter import Drafter
from specdec_core.errors import ConfigError

ConfigT = TypeVar("ConfigT", bound=Record)
FactoryT = TypeVar("FactoryT", bound=Callable[..., Drafter])


class DrafterRegistry:
    """Makes drafters from their options; a method is registered once, where it is written."""

    def __init__(self) -> None:
        self._factories: dict[str, tuple[type[Record], Callable[[Any], Drafter]]] = {}

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the registered methods, sorted."""
        return tuple(sorted(self._factories))

    def register(self, config_class: type[ConfigT]) -> Callable[[FactoryT], FactoryT]:
        """Return the class decorator that files a drafter under the `method` of `config_class`.

        The decorated class is called with one `config_class` object.

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

        def add(factory: FactoryT) -> FactoryT:
            if method in self._factories:
                raise ConfigError(f"drafter method {method!r} is registered twice: rename one")
            self._factories[method] = (config_class, factory)
            return factory

        return add

    def make(self, config: Record) -> Drafter:
        """Return a new drafter for its options.

        Raises:
            ConfigError: if no drafter is registered for these options.
        """
        method = getattr(config, "method", type(config).__name__)
        config_class, factory = self._factories.get(method, (None, None))
        if config_class is None or factory is None or not isinstance(config, config_class):
            near = get_close_matches(method, self.methods) or list(self.methods)
            raise ConfigError(
                f"no drafter is registered for method {method!r} with options "
                f"{type(config).__name__}: did you mean {' or '.join(near) or 'to register one'}?"
            )
        return factory(config)


DRAFTERS = DrafterRegistry()
register = DRAFTERS.register


def make_drafter(config: Record) -> Drafter:
    """Return a new drafter of a registered method; see `DrafterRegistry.make`."""
    return DRAFTERS.make(config)


def is_replayable(config: Record) -> bool:
    """Return whether such a drafter depends on committed tokens and their rankings alone."""
    return make_drafter(config).needs.rows != "all"
