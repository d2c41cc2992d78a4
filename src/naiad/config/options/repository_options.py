"""The options of the model repositories and their flags; a part of the one table, whose whole is `server_options`.

Owns names, defaults, ranges and help, and what of them can't be together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.kinds import Bool, Bytes, Choice, Float, Int, LocalPath, PlainName, RepositoryPlace, Switch, Text
from naiad.errors import invalid_argument

ALL_MODELS = "*"
"""The value of --load-model that stands for every model."""

_REPOSITORY = Category.REPOSITORY


# Without slots: a class can have one base with slots only.
@dataclass(frozen=True)
class RepositoryOptions:
    """The fields of `ServerOptions` for model repositories, one field a flag."""

    model_repository: tuple[Path | str, ...] = option(
        Flag(
            "model-repository",
            _REPOSITORY,
            RepositoryPlace(),
            (),
            "A folder of models, a model's folder or a model's file; paths without a flag are added. At least one is needed. "
            "URLs of folders (s3://, gs://, as://, and others that fsspec knows) are copied to --model-cache-directory.",
            default_text="none",
            aliases=("model-store",),
            is_repeatable=True,
            collect=lambda paths: tuple(dict.fromkeys(paths)),
        )
    )
    model_cache_directory: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "model-cache-directory",
            _REPOSITORY,
            LocalPath(),
            None,
            "Where models of repositories with URLs are copied to. It must belong to the server's user alone: whoever can "
            "write there can run code in the server.",
            default_text="$XDG_CACHE_HOME/naiad/models",
            is_ours=True,
        )
    )
    model_control_mode: str = option(
        Flag(
            "model-control-mode",
            _REPOSITORY,
            Choice(("none", "poll", "explicit")),
            "none",
            "Who changes what is loaded. none: nobody, all models are loaded at the start. poll: the repositories, which are "
            "looked at every --repository-poll-secs. explicit: clients, with load and unload; at the start --load-model is "
            "loaded.",
        )
    )
    load_model: tuple[str, ...] = option(
        Flag(
            "load-model",
            _REPOSITORY,
            Text(is_empty_allowed=False, metavar="NAME"),
            (),
            "A model to load at the start with --model-control-mode=explicit; * alone is every model.",
            default_text="none",
            is_repeatable=True,
            collect=lambda names: tuple(dict.fromkeys(names)),
        )
    )
    repository_poll_secs: int = option(
        Flag(
            "repository-poll-secs",
            _REPOSITORY,
            Int(minimum=0),
            15,
            "How often the repositories are looked at with --model-control-mode=poll; 0 is never. Changes on local disks are "
            "looked at at once.",
            unit="seconds",
        )
    )
    repository_settle_secs: int = option(
        Flag(
            "repository-settle-secs",
            _REPOSITORY,
            Int(minimum=1),
            2,
            "For how long nothing of a model may have changed before --model-control-mode=poll loads it, so that one that is "
            "still being copied isn't loaded; at most --repository-poll-secs.",
            unit="seconds",
            is_ours=True,
        )
    )
    model_config_name: str = option(
        Flag(
            "model-config-name",
            _REPOSITORY,
            PlainName(),
            "",
            "Which config of a model counts: configs/<name>.pbtxt in its folder, or config.pbtxt where there is none of that "
            "name.",
            default_text="none",
        )
    )
    model_namespacing: bool = option(
        Flag(
            "model-namespacing",
            _REPOSITORY,
            Bool(),
            False,
            "Load models of equal names in several repositories; without it none of them is loaded. A request for such a name "
            "is refused, since it can't say which is meant; an ensemble means the model of its own repository.",
        )
    )
    model_load_thread_count: int = option(
        Flag(
            "model-load-thread-count",
            _REPOSITORY,
            Int(minimum=1),
            4,
            "How many models load at the same time; one that takes over a minute no longer counts.",
        )
    )
    model_load_retry_count: int = option(
        Flag("model-load-retry-count", _REPOSITORY, Int(minimum=0), 0, "How often loading is tried again after a failure.")
    )
    model_load_timeout_secs: float = option(
        Flag(
            "model-load-timeout-secs",
            _REPOSITORY,
            Float(minimum=0),
            3600.0,
            "After how long a load that hangs is given up, so that the model can be loaded again or unloaded; counted for its "
            "files, its configuration and each version. 0 is never.",
            unit="seconds",
            is_ours=True,
        )
    )
    isolate_load: bool = option(
        Flag(
            "isolate-load",
            _REPOSITORY,
            Bool(),
            False,
            "First load each model in a process of its own, which is ended then: a file that crashes its engine or takes all "
            "memory is refused and harms nothing else. Takes half a second a load; models in Python live in processes anyway.",
            is_ours=True,
        )
    )
    model_memory_limit: int = option(
        Flag(
            "model-memory-limit",
            _REPOSITORY,
            Bytes(),
            0,
            "How much memory the loaded models may take: 8GiB, 500MB. Beyond it idle ones are unloaded, the least recently "
            "used first, and loaded again at their next request, which waits. 0 is no limit.",
            is_ours=True,
            unit="bytes",
        )
    )
    allow_model_upload: bool = option(
        Flag(
            "allow-model-upload",
            _REPOSITORY,
            Bool(),
            False,
            "Let load requests carry the model's files (file:<version>/<name>). Whoever may send them runs code of their own "
            "with the server's rights.",
            is_ours=True,
        )
    )
    exit_on_error: bool = option(
        Flag("exit-on-error", _REPOSITORY, Bool(), True, "Exit with code 1 when a model fails to load at the start.")
    )
    disable_auto_complete_config: bool = option(
        Flag(
            "disable-auto-complete-config",
            _REPOSITORY,
            Switch(),
            False,
            "Don't complete model configurations from the model files: config.pbtxt has to say everything.",
        )
    )


def check_model_control(options: RepositoryOptions) -> None:
    """Raise INVALID_ARGUMENT for models of the start that the control mode doesn't go with."""
    named = options.load_model
    if named and options.model_control_mode != "explicit":
        raise invalid_argument(
            "Use of '--load-model' requires setting '--model-control-mode=explicit' as well; the mode is "
            f"'{options.model_control_mode}'"
        )
    if ALL_MODELS in named and len(named) > 1:
        raise invalid_argument(
            f"Wildcard model name '{ALL_MODELS}' must be the ONLY startup model if specified at all; --load-model has "
            f"{', '.join(named)}"
        )
