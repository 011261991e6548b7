// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/etcd_lease_store.h"

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/etcd.grpc.pb.h"

namespace lodestar::rpc {
namespace {

namespace etcd = ::etcdserverpb;

using ::testing::AllOf;
using ::testing::HasSubstr;

// FakeEtcd answers the calls of EtcdLeaseStore like etcd does, but its leases do not end by
// themselves. It records requests for the test.
class FakeEtcd final : public etcd::KV::Service, public etcd::Lease::Service {
 public:
  FakeEtcd() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<etcd::KV::Service*>(this));
    builder.RegisterService(static_cast<etcd::Lease::Service*>(this));
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  grpc::Status Range(grpc::ServerContext*, const etcd::RangeRequest* request,
                     etcd::RangeResponse* reply) override {
    if (is_overloaded_) return {grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out"};
    const auto found = keys_.find(request->key());
    if (found != keys_.end()) *reply->add_kvs() = found->second;
    return grpc::Status::OK;
  }

  grpc::Status Txn(grpc::ServerContext* context, const etcd::TxnRequest* request,
                   etcd::TxnResponse* reply) override {
    EXPECT_EQ(request->compare_size(), 1);
    const etcd::Compare& compare = request->compare(0);
    EXPECT_EQ(compare.target(), etcd::Compare::CREATE);
    EXPECT_EQ(compare.result(), etcd::Compare::EQUAL);
    EXPECT_TRUE(compare.has_create_revision());
    const auto found = keys_.find(compare.key());
    const int64_t revision = found == keys_.end() ? 0 : found->second.create_revision();
    if (revision != compare.create_revision()) {
      const etcd::RequestOp& failure = request->failure(0);
      return Range(context, &failure.request_range(),
                   reply->add_responses()->mutable_response_range());
    }
    const etcd::PutRequest& put = request->success(0).request_put();
    if (leases_.count(put.lease()) == 0) {
      return {grpc::StatusCode::NOT_FOUND, "etcdserver: requested lease not found"};
    }
    etcd::KeyValue& key = keys_[put.key()];
    key.set_key(put.key());
    key.set_value(put.value());
    key.set_lease(put.lease());
    key.set_create_revision(++revision_);
    reply->mutable_header()->set_revision(revision_);
    reply->set_succeeded(true);
    reply->add_responses()->mutable_response_put();
    return grpc::Status::OK;
  }

  grpc::Status LeaseGrant(grpc::ServerContext*, const etcd::LeaseGrantRequest* request,
                          etcd::LeaseGrantResponse* reply) override {
    reply->set_id(++last_lease_);
    reply->set_ttl(request->ttl());
    leases_[last_lease_] = request->ttl();
    return grpc::Status::OK;
  }

  grpc::Status LeaseRevoke(grpc::ServerContext*, const etcd::LeaseRevokeRequest* request,
                           etcd::LeaseRevokeResponse*) override {
    if (leases_.erase(request->id()) == 0) {
      return {grpc::StatusCode::NOT_FOUND, "etcdserver: requested lease not found"};
    }
    for (auto key = keys_.begin(); key != keys_.end();) {
      key = key->second.lease() == request->id() ? keys_.erase(key) : std::next(key);
    }
    return grpc::Status::OK;
  }

  grpc::Status LeaseKeepAlive(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<etcd::LeaseKeepAliveResponse, etcd::LeaseKeepAliveRequest>* stream)
      override {
    etcd::LeaseKeepAliveRequest request;
    while (stream->Read(&request)) {
      etcd::LeaseKeepAliveResponse reply;
      reply.set_id(request.id());
      const auto lease = leases_.find(request.id());
      if (lease != leases_.end()) reply.set_ttl(lease->second);
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  const std::string& address() const { return address_; }
  void SetOverloaded() { is_overloaded_ = true; }

 private:
  // There is no lock, because a store makes only one call at a time.
  std::map<std::string, etcd::KeyValue> keys_;
  std::map<int64_t, int64_t> leases_;
  int64_t last_lease_ = 0x70000000'00000000;
  int64_t revision_ = 0;
  bool is_overloaded_ = false;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

class EtcdLeaseStoreTest : public testing::Test {
 protected:
  lease::LeaseAnswer Call(lease::LeaseCall call) {
    call.timeout = absl::Seconds(30);
    return store_.Call(call);
  }
  lease::LeaseAnswer Claim(int64_t lease, const std::string& value) {
    return Call({.kind = lease::LeaseCall::Kind::kClaim, .lease = lease, .value = value});
  }
  int64_t Grant() {
    const lease::LeaseAnswer answer =
        Call({.kind = lease::LeaseCall::Kind::kGrant, .ttl = absl::Milliseconds(4100)});
    EXPECT_OK(answer.status);
    EXPECT_EQ(answer.ttl, absl::Seconds(5));
    return answer.lease;
  }

  FakeEtcd etcd_;
  EtcdLeaseStore store_{{etcd_.address(), "127.0.0.1:1"}, "a/key"};
};

TEST_F(EtcdLeaseStoreTest, OneOfTwoLeasesGetsTheKeyAndBothLearnWhose) {
  EXPECT_FALSE(Call({.kind = lease::LeaseCall::Kind::kRead}).key.has_value());
  const int64_t first = Grant();
  const int64_t second = Grant();
  for (const int64_t lease : {first, second, first}) {
    const lease::LeaseAnswer claimed = Claim(lease, absl::StrCat("by ", lease));
    ASSERT_OK(claimed.status);
    ASSERT_TRUE(claimed.key.has_value());
    EXPECT_EQ(claimed.key->lease, first);
    EXPECT_EQ(claimed.key->value, absl::StrCat("by ", first));
    EXPECT_EQ(claimed.key->revision, 1);
  }
  const lease::LeaseAnswer read = Call({.kind = lease::LeaseCall::Kind::kRead});
  ASSERT_TRUE(read.key.has_value());
  EXPECT_EQ(read.key->lease, first);
  EXPECT_EQ(read.key->revision, 1);
  ASSERT_OK(Call({.kind = lease::LeaseCall::Kind::kRevoke, .lease = first}).status);
  EXPECT_EQ(Claim(second, "v").key->revision, 2) << "later keys have higher ones";
}

TEST_F(EtcdLeaseStoreTest, ARevokedLeaseTakesItsKeyWithItAndIsNotKeptAlive) {
  const int64_t lease = Grant();
  ASSERT_OK(Claim(lease, "v").status);
  const lease::LeaseCall keep_alive = {.kind = lease::LeaseCall::Kind::kKeepAlive, .lease = lease};
  EXPECT_EQ(Call(keep_alive).ttl, absl::Seconds(5));
  EXPECT_OK(Call({.kind = lease::LeaseCall::Kind::kRevoke, .lease = lease}).status);
  EXPECT_FALSE(Call({.kind = lease::LeaseCall::Kind::kRead}).key.has_value());
  const lease::LeaseAnswer kept = Call(keep_alive);
  EXPECT_OK(kept.status);
  EXPECT_EQ(kept.ttl, absl::ZeroDuration());
  EXPECT_THAT(Claim(lease, "v").status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("lease not found")));
}

TEST_F(EtcdLeaseStoreTest, ErrorsNameEndpointAndCall) {
  EXPECT_EQ(store_.num_endpoints(), 2);
  EXPECT_THAT(
      Call({.kind = lease::LeaseCall::Kind::kKeepAlive, .endpoint = 1, .lease = 1}).status,
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("etcd at 127.0.0.1:1: LeaseKeepAlive")));
  etcd_.SetOverloaded();
  const lease::LeaseAnswer read = Call({.kind = lease::LeaseCall::Kind::kRead});
  EXPECT_THAT(read.status, StatusIs(absl::StatusCode::kUnavailable,
                                    AllOf(HasSubstr(etcd_.address()), HasSubstr("Range"),
                                          HasSubstr("request timed out"))));
}

}  // namespace
}  // namespace lodestar::rpc
