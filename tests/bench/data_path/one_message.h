// SPDX-License-Identifier: Apache-2.0

// The simplest implementation: the whole tensor in the `bytes` field of one protobuf message, with
// generated code on both sides.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "proto/parameter_service.grpc.pb.h"

namespace lodestar {

class OneMessageServer {
 public:
  OneMessageServer();
  ~OneMessageServer();

  const std::string& address() const { return address_; }

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class OneMessageClient {
 public:
  explicit OneMessageClient(const std::string& address);

  // Returns when the server has copied the tensor to its destination.
  void Send(absl::Span<const char> source);

 private:
  std::unique_ptr<v1::ParameterService::Stub> stub_;
};

}  // namespace lodestar
