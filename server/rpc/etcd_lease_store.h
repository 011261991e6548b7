// SPDX-License-Identifier: Apache-2.0

// EtcdLeaseStore is a LeaseStore in etcd (3.4 or later), over etcd's v3 API. It uses plain gRPC:
// neither TLS nor etcd users.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "server/durability/lease/lease_store.h"

namespace lodestar::rpc {

class EtcdLeaseStore : public lease::LeaseStore {
 public:
  // `endpoints` are HOST:PORT of members of one etcd cluster. There must be at least one.
  EtcdLeaseStore(const std::vector<std::string>& endpoints, std::string key);

  int num_endpoints() const override { return static_cast<int>(endpoints_.size()); }
  // Makes one call. The text of an error names the endpoint and the call.
  lease::LeaseAnswer Call(const lease::LeaseCall& call) override;

 private:
  struct Endpoint {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;  // null: the next call opens a channel
  };

  std::vector<Endpoint> endpoints_;
  const std::string key_;
};

}  // namespace lodestar::rpc
