"""Asks the server to load and unload a model, and writes to its log."""

import sys

import triton_python_backend_utils as pb_utils


def loads(model, request):
    pb_utils.load_model(model_name="echo")


def unloads(model, request):
    pb_utils.unload_model(model_name="echo")


def logs(model, request):
    logger = pb_utils.Logger
    logger.log("plain words")
    logger.log("words with a level", logger.WARNING)
    logger.log_info("info words")
    logger.log_warn("warning words é")
    logger.log_error("error words\nsecond line")
    logger.log_verbose("verbose words")
    logger.log("verbose by level", logger.VERBOSE)
    return "logged"


def prints(model, request):
    sys.stdout.write("printed words\n")
    return "printed"
