"""The composition root: the only place that constructs everything and joins it.

Owns no behaviour. What is made here is handed to `server.process`, which runs it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial

from naiad import __version__
from naiad.backends.python.settings import with_environment_flags
from naiad.backends.table import BackendTable
from naiad.cache.base import ResponseCache
from naiad.cache.front import CacheFront
from naiad.clock import Clock, LoopClock
from naiad.config.options import ServerOptions
from naiad.core.client_memory import ClientMemory
from naiad.core.cuda_memory import CudaMemory
from naiad.core.members import CoreMembers
from naiad.core.server import Controls, Identity, InferenceServer, LogControl
from naiad.core.traffic.control import TrafficControl
from naiad.core.traffic.metrics import traffic_families
from naiad.devices.machine import open_devices
from naiad.devices.nvml import Nvml
from naiad.execution.placement import TurnBudget
from naiad.execution.pools import ExecutionPools
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.settings import settings_of
from naiad.frontends.access import AccessRules
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.clients import client_reader
from naiad.frontends.grpc.listener import GrpcListener
from naiad.frontends.grpc.web.app import GrpcWebApp
from naiad.frontends.http.app import create_app
from naiad.frontends.http.connection.site import HttpSite
from naiad.frontends.http.listener import HttpListener
from naiad.frontends.http.options import HttpOptions
from naiad.frontends.metrics.app import create_app as create_metrics_app
from naiad.frontends.one_port import OnePortListener
from naiad.observability.custom_metrics import CustomMetrics
from naiad.observability.metrics import MetricsRegistry, ModelMetricsSource
from naiad.repository.control.control import ControlSettings, ModelControl
from naiad.repository.control.places import Places
from naiad.repository.layout import Naming, ScanResult
from naiad.repository.loader import Loader, LoadSettings
from naiad.repository.loading.attempts import LoadRules
from naiad.repository.loading.trial import Trials
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Model, Runtime
from naiad.repository.remote.opening import Repositories
from naiad.repository.workers import WorkerLoader
from naiad.request.batch import Scheduler
from naiad.schedulers.rate_limiter.capacity import joined
from naiad.schedulers.rate_limiter.limiter import RateLimiter
from naiad.server.caches import response_cache
from naiad.server.gpu_metrics import GpuMetrics
from naiad.server.grpc_assembly import grpc_site
from naiad.server.listening import Sockets
from naiad.server.own_metrics import own_families

Listener = HttpListener | GrpcListener | OnePortListener

SINGLE_FILE_SUFFIXES = (".onnx",)


@dataclass(frozen=True, slots=True)
class ModelsToServe:
    """What the server is to load, and the backends that may load it."""

    found: ScanResult
    backends: BackendTable = field(default_factory=BackendTable)
    repositories: Repositories = field(default_factory=Repositories)


@dataclass(frozen=True, slots=True)
class Server:
    """Everything that runs."""

    core: InferenceServer
    repository: RepositoryManager
    listeners: tuple[Listener, ...]
    control: ModelControl
    pools: ExecutionPools
    api_keys: ApiKeys | None
    cache: ResponseCache | None


def rate_limiter(options: ServerOptions, clock: Clock, workers: WorkerHost) -> RateLimiter | None:
    """Return what hands out resources, None when instances don't wait for any."""
    if options.rate_limit == "off":
        return None
    return RateLimiter(clock, joined(options.rate_limit_resource), workers.waits)


def max_connections(options: ServerOptions) -> int:
    """Return how many connections of clients may be open at once."""
    return options.http_max_connections + (options.grpc_max_connections if options.allow_grpc else 0)


def naming_of(options: ServerOptions) -> Naming:
    """Return what the options say of the names of models and configs."""
    return Naming(options.model_config_name, options.model_namespacing)


def assemble(
    options: ServerOptions,
    models: ModelsToServe,
    sockets: Sockets,
    logs: LogControl,
    loop: asyncio.AbstractEventLoop,
) -> Server:
    """Construct a server; nothing is loaded and nothing listens yet."""
    api_keys = _api_keys(options)
    clock = LoopClock(loop)
    custom_metrics = CustomMetrics()
    devices, nvml = open_devices(options.host_policy, options.min_supported_compute_capability)
    pools = ExecutionPools(options.thread_count, loop, devices.policies)
    workers = WorkerHost(loop, pools.default, settings_of(options), custom_metrics, devices)
    cache = response_cache(options.cache, clock, loop)
    members = CoreMembers()
    runtime = Runtime(
        clock,
        pools,
        TurnBudget(clock.call_soon),
        options.in_place,
        workers,
        cache,
        members,
        rate_limiter(options, clock, workers),
        options.client_weights,
    )
    load_settings = LoadSettings(not options.disable_auto_complete_config, with_environment_flags(options), devices)
    trials = Trials(options.backend_directory) if options.isolate_load else None
    loader = Loader(models.backends, load_settings, WorkerLoader(workers), trials=trials)
    repository = RepositoryManager(loader, runtime, _load_rules(options), options.model_memory_limit)
    control = _model_control(repository, options, models, loop)
    client_memory = ClientMemory(options.allow_client_shm, pools.default.submit, CudaMemory())
    identity = Identity(options.id, __version__)
    traffic = TrafficControl(repository, random.random, pools.default.submit)
    controls = Controls(control, traffic, logs)
    core = InferenceServer(identity, repository, controls, client_memory, options.strict_readiness)
    workers.service = members.core = core
    workers.infer = partial(core.infer_at, None, None)
    workers.waits.parts = repository.ensembles.parts
    registry = MetricsRegistry(
        counter_latencies=options.metrics_config.counter_latencies,
        cpu_metrics=options.allow_cpu_metrics,
        interval_ms=options.metrics_interval_ms,
    )
    registry.add_families(custom_metrics.families)
    if cache is not None:
        registry.add_families(cache.families)
    if options.allow_gpu_metrics and nvml is not None:
        _add_gpus(registry, nvml, pools, options)
    repository.on_ready = lambda model: registry.add_model(_metrics_source(model))
    repository.on_gone = lambda model: registry.remove_model(model.plan.name, str(model.plan.version), model.namespace)
    for family in (*own_families(repository, pools), *traffic_families(traffic)):
        registry.add_family(family)
    listeners = _service_listeners(core, options, sockets, loop, api_keys)
    if sockets.metrics is not None:
        site = HttpSite(core, HttpOptions(), create_metrics_app(registry, api_keys), loop, has_hot_routes=False)
        listeners.append(HttpListener(site, sockets.metrics))
    return Server(core, repository, tuple(listeners), control, pools, api_keys, cache)


def _add_gpus(registry: MetricsRegistry, nvml: Nvml, pools: ExecutionPools, options: ServerOptions) -> None:
    uuids = [gpu.uuid for gpu in nvml.gpus()]
    if uuids:
        metrics = GpuMetrics(lambda: nvml.readings(uuids), pools.default.submit, options.metrics_interval_ms)
        registry.add_families(metrics.families)


def _load_rules(options: ServerOptions) -> LoadRules:
    return LoadRules(options.model_load_thread_count, options.model_load_retry_count, options.model_load_timeout_secs)


def _model_control(
    repository: RepositoryManager, options: ServerOptions, models: ModelsToServe, loop: asyncio.AbstractEventLoop
) -> ModelControl:
    given = {name: source for name, source in models.found.sources.items() if source.config is not None}
    control = ModelControl(
        repository,
        Places(models.repositories.paths, SINGLE_FILE_SUFFIXES, given, models.repositories.remote, naming_of(options)),
        ControlSettings(
            options.model_control_mode,
            options.load_model,
            options.repository_poll_secs,
            options.repository_settle_secs,
            options.allow_model_upload,
        ),
        loop,
    )
    control.announce(models.found)
    return control


def _service_listeners(
    core: InferenceServer,
    options: ServerOptions,
    sockets: Sockets,
    loop: asyncio.AbstractEventLoop,
    api_keys: ApiKeys | None,
) -> list[Listener]:
    """Return the listeners of HTTP and gRPC that are wanted; those that share a socket are one."""
    http = grpc = web = None
    if sockets.grpc is not None:
        web = grpc_site(core, options, loop, api_keys)
        grpc = GrpcListener(web, None if sockets.is_one else sockets.grpc)
    if sockets.http is not None:
        http_options = _http_options(options, api_keys)
        app = create_app(core, http_options)
        if web is not None and options.grpc_web:
            app = GrpcWebApp(web, AccessRules(http_options.restricted), app)
        http = HttpListener(HttpSite(core, http_options, app, loop), None if sockets.is_one else sockets.http)
    if sockets.http is not None and sockets.is_one and http and grpc:
        silence_s, most = options.http_keep_alive_timeout_secs, options.http_max_connections
        return [OnePortListener(http, grpc, sockets.http, silence_s, most)]
    # gRPC stops first: it ends the calls of gRPC-Web, for which HTTP's connections would wait.
    return [listener for listener in (grpc, http) if listener is not None]


def _metrics_source(model: Model) -> ModelMetricsSource:
    plan = model.plan
    return ModelMetricsSource(
        name=plan.name,
        version=str(plan.version),
        tags=plan.metric_tags,
        statistics=model.statistics,
        pending_count=model.scheduler.pending_count
        if model.cached is None
        else partial(_with_held, model.scheduler, model.cached),
        load_seconds=model.load_seconds,
        namespace=model.namespace,
        has_cache=model.cached is not None,
    )


def _with_held(scheduler: Scheduler, cached: CacheFront) -> int:
    """Return how many requests wait in the queue or at the cache, for a look-up or the answer to another."""
    return scheduler.pending_count() + cached.open_count


def _api_keys(options: ServerOptions) -> ApiKeys | None:
    """Return the keys that requests need one of, None when they need none."""
    if not options.has_api_keys:
        return None
    return ApiKeys(options.api_key, options.api_key_file, options.api_key_open)


def _http_options(options: ServerOptions, api_keys: ApiKeys | None) -> HttpOptions:
    return HttpOptions(
        max_input_size_bytes=options.http_max_input_size,
        cors_origins=options.http_cors_origin,
        restricted=options.http_restricted_api,
        api_keys=api_keys,
        header_forward_pattern=options.http_header_forward_pattern,
        client_of=client_reader(options.fairness_key, api_keys),
        header_timeout_s=options.http_header_timeout_secs,
        body_timeout_s=options.http_body_timeout_secs,
        keep_alive_timeout_s=options.http_keep_alive_timeout_secs,
        max_connections=options.http_max_connections,
    )
