"""A gRPC client without generated code: what it knows, the service has told it by reflection."""

import functools

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status

TIMEOUT = 20
# What services have told, the last one last.
POOLS = []


class Client:
    """One connection, with a capability or without."""

    def __init__(self, address):
        # A proxy that the environment names is not for this machine.
        self.channel = grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        self.told = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.told)
        POOLS.append(self.pool)

    def services(self):
        return sorted(self.told.get_services())

    @functools.cache
    def method(self, service, name):
        """The classes of question and answer, and what makes the call."""
        about = self.pool.FindServiceByName(service).methods_by_name[name]
        question = message_factory.GetMessageClass(about.input_type)
        answer = message_factory.GetMessageClass(about.output_type)
        kinds = {
            (False, False): self.channel.unary_unary,
            (False, True): self.channel.unary_stream,
            (True, False): self.channel.stream_unary,
        }
        make = kinds[about.client_streaming, about.server_streaming]
        path = f"/{service}/{name}"
        return question, make(path, question.SerializeToString, answer.FromString)

    def call(self, service, name, fields, capability=None):
        question, make = self.method(service, name)
        metadata = [("authorization", f"Bearer {capability}")] if capability else []
        return make(question(**fields), timeout=TIMEOUT, metadata=metadata)


def problem(call):
    """The code of a call that has to fail, and the problem in its details."""
    try:
        answer = call()
    except grpc.RpcError as error:
        rich = rpc_status.from_call(error)
        if rich is None:
            return error.code().name, {}
        (detail,) = rich.details
        about = POOLS[-1].FindMessageTypeByName(detail.type_url.split("/")[1])
        said = message_factory.GetMessageClass(about).FromString(detail.value)
        return error.code().name, json_format.MessageToDict(said)
    raise AssertionError(f"answered with {type(answer).__name__}")
