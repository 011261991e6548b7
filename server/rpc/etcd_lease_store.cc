// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/etcd_lease_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/bulk_options.h"
#include "proto/etcd.grpc.pb.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {
namespace {

namespace etcd = ::etcdserverpb;

const char* NameOf(lease::LeaseCall::Kind kind) {
  switch (kind) {
    case lease::LeaseCall::Kind::kRead:
      return "Range";
    case lease::LeaseCall::Kind::kGrant:
      return "LeaseGrant";
    case lease::LeaseCall::Kind::kClaim:
      return "Txn";
    case lease::LeaseCall::Kind::kKeepAlive:
      return "LeaseKeepAlive";
    case lease::LeaseCall::Kind::kRevoke:
      return "LeaseRevoke";
  }
  return "";
}

// Returns whole seconds, as etcd wants, rounded up.
int64_t WholeSeconds(absl::Duration ttl) {
  return std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
}

absl::Duration TimeToLive(int64_t seconds) { return absl::Seconds(std::max<int64_t>(0, seconds)); }

std::optional<lease::LeaseKey> FirstKey(const etcd::RangeResponse& range) {
  if (range.kvs().empty()) return std::nullopt;
  return lease::LeaseKey{range.kvs(0).value(), range.kvs(0).lease(),
                         range.kvs(0).create_revision()};
}

grpc::Status Read(etcd::KV::Stub& stub, grpc::ClientContext* context, const std::string& key,
                  lease::LeaseAnswer& answer) {
  etcd::RangeRequest request;
  request.set_key(key);
  etcd::RangeResponse reply;
  const grpc::Status status = stub.Range(context, request, &reply);
  answer.key = FirstKey(reply);
  return status;
}

grpc::Status Claim(etcd::KV::Stub& stub, grpc::ClientContext* context, const std::string& key,
                   const lease::LeaseCall& call, lease::LeaseAnswer& answer) {
  etcd::TxnRequest request;
  etcd::Compare& is_free = *request.add_compare();
  is_free.set_key(key);
  is_free.set_target(etcd::Compare::CREATE);
  is_free.set_result(etcd::Compare::EQUAL);
  is_free.set_create_revision(0);
  etcd::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(call.value);
  put.set_lease(call.lease);
  request.add_failure()->mutable_request_range()->set_key(key);
  etcd::TxnResponse reply;
  const grpc::Status status = stub.Txn(context, request, &reply);
  if (reply.succeeded()) {
    answer.key = lease::LeaseKey{call.value, call.lease, reply.header().revision()};
  } else if (!reply.responses().empty()) {
    answer.key = FirstKey(reply.responses(0).response_range());
  }
  return status;
}

grpc::Status Grant(etcd::Lease::Stub& stub, grpc::ClientContext* context,
                   const lease::LeaseCall& call, lease::LeaseAnswer& answer) {
  etcd::LeaseGrantRequest request;
  request.set_ttl(WholeSeconds(call.ttl));
  etcd::LeaseGrantResponse reply;
  const grpc::Status status = stub.LeaseGrant(context, request, &reply);
  answer.lease = reply.id();
  answer.ttl = TimeToLive(reply.ttl());
  if (!status.ok() || reply.error().empty()) return status;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, reply.error());
}

// Renews the lease on a stream of its own, so that a lost stream affects only this renewal.
grpc::Status KeepAlive(etcd::Lease::Stub& stub, grpc::ClientContext* context,
                       const lease::LeaseCall& call, lease::LeaseAnswer& answer) {
  etcd::LeaseKeepAliveRequest request;
  request.set_id(call.lease);
  etcd::LeaseKeepAliveResponse reply;
  const auto stream = stub.LeaseKeepAlive(context);
  stream->Write(request);
  stream->WritesDone();
  const bool has_reply = stream->Read(&reply);
  if (has_reply) context->TryCancel();
  const grpc::Status status = stream->Finish();
  if (!has_reply) {
    if (!status.ok()) return status;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "etcd ended the stream without an answer");
  }
  answer.ttl = TimeToLive(reply.ttl());
  return grpc::Status::OK;
}

grpc::Status Revoke(etcd::Lease::Stub& stub, grpc::ClientContext* context,
                    const lease::LeaseCall& call) {
  etcd::LeaseRevokeRequest request;
  request.set_id(call.lease);
  etcd::LeaseRevokeResponse reply;
  return stub.LeaseRevoke(context, request, &reply);
}

grpc::Status Carry(const std::shared_ptr<grpc::Channel>& channel, const std::string& key,
                   const lease::LeaseCall& call, lease::LeaseAnswer& answer) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(call.timeout));
  const auto keys = etcd::KV::NewStub(channel);
  const auto leases = etcd::Lease::NewStub(channel);
  switch (call.kind) {
    case lease::LeaseCall::Kind::kRead:
      return Read(*keys, &context, key, answer);
    case lease::LeaseCall::Kind::kGrant:
      return Grant(*leases, &context, call, answer);
    case lease::LeaseCall::Kind::kClaim:
      return Claim(*keys, &context, key, call, answer);
    case lease::LeaseCall::Kind::kKeepAlive:
      return KeepAlive(*leases, &context, call, answer);
    case lease::LeaseCall::Kind::kRevoke:
      return Revoke(*leases, &context, call);
  }
  return grpc::Status::OK;
}

}  // namespace

EtcdLeaseStore::EtcdLeaseStore(const std::vector<std::string>& endpoints, std::string key)
    : key_(std::move(key)) {
  for (const std::string& address : endpoints) endpoints_.push_back({address, nullptr});
}

lease::LeaseAnswer EtcdLeaseStore::Call(const lease::LeaseCall& call) {
  Endpoint& endpoint = endpoints_[call.endpoint];
  if (endpoint.channel == nullptr) {
    endpoint.channel = grpc::CreateCustomChannel(
        endpoint.address, grpc::InsecureChannelCredentials(), wire::ControlChannelArguments());
  }
  lease::LeaseAnswer answer;
  const absl::Status status = wire::FromGrpcStatus(Carry(endpoint.channel, key_, call, answer));
  if (status.ok()) return answer;
  // After an error the channel is opened anew. The server may have forgotten the old connection,
  // and every later call on it would hang.
  if (!absl::IsNotFound(status)) endpoint.channel = nullptr;
  return {.status =
              absl::Status(status.code(), absl::StrCat("etcd at ", endpoint.address, ": ",
                                                       NameOf(call.kind), ": ", status.message()))};
}

}  // namespace lodestar::rpc
