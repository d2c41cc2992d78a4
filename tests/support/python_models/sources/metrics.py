"""Custom metrics: made, changed, asked for, and what they refuse."""

import gc

import triton_python_backend_utils as pb_utils


def initialize(model):
    model.counters = pb_utils.MetricFamily(
        name="my_requests", description="Requests, counted", kind=pb_utils.MetricFamily.COUNTER
    )
    model.gauges = pb_utils.MetricFamily(name="my_level", description="A level", kind=pb_utils.MetricFamily.GAUGE)
    model.times = pb_utils.MetricFamily(name="my_times", description="Times", kind=pb_utils.MetricFamily.HISTOGRAM)
    model.counter = model.counters.Metric(labels={"model": "metrics", "kind": "a"})
    model.gauge = model.gauges.Metric(labels={})
    model.histogram = model.times.Metric(labels={"m": "1"}, buckets=[0.1, 1.0, 10.0])


def counts(model, request):
    before = model.counter.value()
    model.counter.increment(2)
    model.counter.increment(0.5)
    return model.counter.value() - before


def gauges(model, request):
    model.gauge.set(7)
    model.gauge.increment(-2.5)
    return model.gauge.value()


def gauge_goes_negative(model, request):
    model.gauge.set(-3)
    return model.gauge.value()


def observes(model, request):
    for value in (0.05, 0.5, 5, 50):
        model.histogram.observe(value)
    return "observed"


def counter_set(model, request):
    model.counter.set(1)


def counter_down(model, request):
    model.counter.increment(-1)


def counter_observe(model, request):
    model.counter.observe(1)


def gauge_observe(model, request):
    model.gauge.observe(1)


def histogram_increment(model, request):
    model.histogram.increment(1)


def histogram_set(model, request):
    model.histogram.set(1)


def histogram_value(model, request):
    return model.histogram.value()


def histogram_without_buckets(model, request):
    return model.times.Metric(labels={"m": "2"}) is not None


def histogram_with_buckets_out_of_order(model, request):
    return model.times.Metric(labels={"m": "3"}, buckets=[2, 1]) is not None


def counter_with_buckets(model, request):
    return model.counters.Metric(labels={"kind": "b"}, buckets=[1]) is not None


def the_same_family_again(model, request):
    again = pb_utils.MetricFamily(name="my_requests", description="Requests, counted", kind=pb_utils.MetricFamily.COUNTER)
    metric = again.Metric(labels={"model": "metrics", "kind": "a"})
    before = model.counter.value()
    metric.increment(1)
    return model.counter.value() - before


def the_same_family_of_another_kind(model, request):
    return (
        pb_utils.MetricFamily(name="my_requests", description="Requests, counted", kind=pb_utils.MetricFamily.GAUGE) is not None
    )


def the_same_family_with_another_description(model, request):
    return pb_utils.MetricFamily(name="my_requests", description="Others", kind=pb_utils.MetricFamily.COUNTER) is not None


def a_name_that_is_not_one(model, request):
    return pb_utils.MetricFamily(name="no name", description="", kind=pb_utils.MetricFamily.COUNTER) is not None


def a_label_that_is_not_one(model, request):
    return model.counters.Metric(labels={"no label": "x"}) is not None


def a_label_of_a_number(model, request):
    return model.counters.Metric(labels={"x": 1}) is not None


def no_kind(model, request):
    return pb_utils.MetricFamily(name="my_other", description="x") is not None


def no_description(model, request):
    return pb_utils.MetricFamily(name="my_other", kind=pb_utils.MetricFamily.COUNTER) is not None


def unknown_kind(model, request):
    return pb_utils.MetricFamily(name="my_other", description="x", kind=9) is not None


def default_labels(model, request):
    return pb_utils.MetricFamily(name="my_plain", description="Plain", kind=pb_utils.MetricFamily.COUNTER).Metric().value()


def a_metric_goes(model, request):
    family = pb_utils.MetricFamily(name="my_short_life", description="x", kind=pb_utils.MetricFamily.COUNTER)
    metric = family.Metric(labels={"a": "b"})
    metric.increment(1)
    del metric, family
    gc.collect()
    return "gone"


def kinds(model, request):
    return [type(getattr(pb_utils.MetricFamily, kind)).__name__ for kind in ("COUNTER", "GAUGE", "HISTOGRAM")]
