"""`auto_complete_config` in the way that the model's parameter `way` names; `execute` answers Y = X."""

import triton_python_backend_utils as pb_utils

INPUT = {"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}
OUTPUT = {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}


def everything(config):
    config.set_max_batch_size(4)
    config.add_input(INPUT)
    config.add_output(OUTPUT)
    config.set_dynamic_batching()
    return config


def optional_input(config):
    config.add_input({"name": "O", "data_type": "TYPE_INT32", "dims": [1], "optional": True})
    return everything(config)


def decoupled(config):
    config.set_model_transaction_policy({"decoupled": True})
    return everything(config)


def smaller_batch(config):
    config.set_max_batch_size(2)
    return config


def the_same_again(config):
    return everything(everything(config))


def not_a_config(config):
    return {"max_batch_size": 4}


def nothing(config):
    return None


def unchanged(config):
    return config


def extra_key(config):
    config.add_input({**INPUT, "format": 1})
    return config


def no_data_type(config):
    config.add_input({"name": "X", "dims": [1]})
    return config


def no_dims(config):
    config.add_output({"name": "Y", "data_type": "TYPE_FP32"})
    return config


def no_name(config):
    config.add_input({"data_type": "TYPE_FP32", "dims": [1]})
    return config


def other_data_type(config):
    config.add_input({**INPUT, "data_type": "TYPE_INT32"})
    return config


def other_dims(config):
    config.add_output({**OUTPUT, "dims": [3]})
    return config


def output_optional(config):
    config.add_output({**OUTPUT, "optional": True})
    return config


def dynamic_batching_with_sequences(config):
    config.set_dynamic_batching()
    return config


def policy_conflict(config):
    config.set_model_transaction_policy({"decoupled": True})
    return config


def policy_with_unknown_key(config):
    config.set_model_transaction_policy({"decoupled": True, "x": 1})
    return config


def raises(config):
    raise ValueError("no config é")


def shows(config):
    value = config.as_dict()
    raise ValueError(f"{type(value).__name__} {value['name']} {value['max_batch_size']} {sorted(value)}")


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        way = config.as_dict()["parameters"]["way"]["string_value"]
        return globals()[way](config)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())])
            for request in requests
        ]
