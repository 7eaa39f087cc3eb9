"""Turns the options of a model into the parameters of a command.

typer only splits the command line and writes the help. Values arrive as text and are parsed by the kind of the option,
so that an error about a value is a single line in codecfleet's words.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args

import typer
from pydantic import BaseModel

from ..jobs.request.config import OPTIONS, load_config
from ..jobs.request.layers import Layer, spec_of
from ..jobs.request.options import FLAG, Option, flag_of, options_of
from ..jobs.request.parts import RUN, Source
from ..jobs.request.spec import JobOptions, TranscodeSpec
from ..jobs.request.values import parse_path

ModelT = TypeVar("ModelT", bound=BaseModel)
ReturnT = TypeVar("ReturnT")


def valued(
    flag_: str,
    metavar: str,
    text: str,
    panel: str | None = None,
    callback: Callable[[typer.CallbackParam, str | None], str | None] | None = None,
    *,
    default: bool | None = None,
) -> Any:
    """Return a typer option that takes a value."""
    return typer.Option(
        default, flag_, metavar=metavar, help=text, rich_help_panel=panel, show_default=False, callback=callback
    )


def named(flag_: str, metavar: str, text: str, panel: str | None = None) -> Any:
    """Return a typer option whose value is a name, for example that of a file, a cluster or a node."""
    return valued(flag_, metavar, text, panel, _checked_name)


def address_of(text: str, panel: str | None = None) -> Any:
    """Return the typer option for the address of a Ray cluster, without a default."""
    return named("--address", "RAY_ADDRESS", text, panel)


def usual_address_of(text: str, panel: str | None = None) -> Any:
    """Return the typer option for the address of a Ray cluster; the default comes from the configuration."""
    return valued("--address", "RAY_ADDRESS", text, panel, _usual_address)


def flag(flag_: str, text: str, panel: str | None = None) -> Any:
    """Return a typer option that takes no value."""
    return valued(flag_, "", text, panel, default=False)


def _checked_name(param: typer.CallbackParam, value: str | None) -> str | None:
    return None if value is None else parse_path(param.opts[0], value)


def _usual_address(param: typer.CallbackParam, value: str | None) -> str | None:
    return load_config().settings.address if value is None else _checked_name(param, value)


SourceArgument = Annotated[str, typer.Argument(metavar="INPUT", help=get_args(Source)[1].description)]
JSON = flag("--json", "Print one JSON document, for programs.")
_SPEC_FILE = named(
    "--spec", "FILE.toml", "Read options from this file. Options on the command line override it: docs/config.md.", RUN
)


def with_options(command: Callable[..., ReturnT], model: type[ModelT]) -> Callable[..., ReturnT]:
    """Return ``command`` with the options of ``model``, one per field, in place of its first parameter.

    The other parameters of the command follow. The configuration supplies the defaults.
    """
    name = command.__name__.lstrip("_")

    def made(typed: dict[str, Any]) -> ModelT:
        given = Layer(read(model, typed), flag_of(model))
        return spec_of(model, [load_config().layer(model), given], f"See codecfleet {name} --help.")

    return _with_parameters(command, parameters(model), made)


def with_spec_options(
    command: Callable[..., ReturnT],
    model: type[JobOptions] = TranscodeSpec,
    *,
    default_output: Callable[[str], str] | None = None,
) -> Callable[..., ReturnT]:
    """Return ``command`` with the options of the spec ``model`` and with ``--spec``, as ``with_options`` does.

    ``default_output`` makes OUTPUT optional; its default is derived from INPUT.
    """
    named_preset = _parameter("preset", OPTIONS["preset"], required=False)  # a speed, or the name of a preset
    found = [named_preset if each.name == "preset" else each for each in parameters(model)]
    if default_output is not None:
        found[1] = _optional(found[1])
    found.append(
        inspect.Parameter("spec_file", inspect.Parameter.KEYWORD_ONLY, default=_SPEC_FILE, annotation=str | None)
    )
    name = command.__name__.lstrip("_")

    def made(typed: dict[str, Any]) -> JobOptions:
        if typed["output"] is None and default_output is not None:
            typed["output"] = default_output(typed["source"])
        file, words = typed.pop("spec_file"), typed.pop("preset")
        choice = OPTIONS["preset"].kind.read("--preset", words) if words else None
        given = Layer(read(model, typed), flag_of(model))
        next_step = f"See codecfleet {name} --help."
        return load_config().spec(model, given, choice=choice, spec_file=file, next_step=next_step)

    return _with_parameters(command, found, made)


def read(model: type[BaseModel], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed values of the options that were given, by field. Raises UsageError if a value is invalid."""
    options = options_of(model)
    return {
        field: options[field].kind.read(options[field].flag, value)
        for field, value in typed.items()
        if value not in (None, False, [])
    }


def parameters(model: type[BaseModel]) -> list[inspect.Parameter]:
    """Return a parameter for each option of a model, positional arguments first."""
    found = [
        _parameter(field, option, required=model.model_fields[field].is_required())
        for field, option in options_of(model).items()
    ]
    return sorted(found, key=lambda parameter: parameter.kind)


def _parameter(field: str, option: Option, *, required: bool) -> inspect.Parameter:
    if option.is_argument:
        kind = list[str] if option.kind.is_list else str
        argument = Annotated[kind, typer.Argument(metavar=option.flag, help=option.help)]  # type: ignore[valid-type]
        return inspect.Parameter(field, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=argument)
    is_flag = option.kind is FLAG
    shown: Any = typer.Option(
        ... if required else False if is_flag else None,
        option.flag,
        *option.aliases,
        metavar="" if is_flag else option.metavar,
        help=option.text,
        rich_help_panel=option.panel,
        show_default=False,
    )
    annotation = bool if is_flag else list[str] | None if option.kind.is_list else str | None
    return inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=shown)


def _optional(output: inspect.Parameter) -> inspect.Parameter:
    annotation = Annotated[
        str | None,
        typer.Argument(
            metavar="OUTPUT",
            help="The file that transcode would write. Its extension names the container. Default: an mp4.",
            show_default=False,
        ),
    ]
    return output.replace(annotation=annotation, default=None)


def _with_parameters(
    command: Callable[..., ReturnT], options: list[inspect.Parameter], made: Callable[[dict[str, Any]], object]
) -> Callable[..., ReturnT]:
    own = list(inspect.signature(command).parameters.values())[1:]

    def wrapper(**values: Any) -> ReturnT:
        kept = {parameter.name: values.pop(parameter.name) for parameter in own}
        return command(made(values), **kept)

    signature = inspect.Signature([*options, *own])
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    wrapper.__doc__ = command.__doc__
    return wrapper
