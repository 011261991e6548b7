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

namespace lodestar {
namespace {

namespace wire = ::etcdserverpb;

using ::testing::AllOf;
using ::testing::HasSubstr;

// FakeEtcd does what etcd does with these calls, but no lease ends by itself. Its log of requests
// is the test's.
class FakeEtcd final : public wire::KV::Service, public wire::Lease::Service {
 public:
  FakeEtcd() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<wire::KV::Service*>(this));
    builder.RegisterService(static_cast<wire::Lease::Service*>(this));
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  grpc::Status Range(grpc::ServerContext*, const wire::RangeRequest* request,
                     wire::RangeResponse* reply) override {
    if (is_overloaded_) return {grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out"};
    const auto found = keys_.find(request->key());
    if (found != keys_.end()) *reply->add_kvs() = found->second;
    return grpc::Status::OK;
  }

  grpc::Status Txn(grpc::ServerContext* context, const wire::TxnRequest* request,
                   wire::TxnResponse* reply) override {
    EXPECT_EQ(request->compare_size(), 1);
    const wire::Compare& compare = request->compare(0);
    EXPECT_EQ(compare.target(), wire::Compare::CREATE);
    EXPECT_EQ(compare.result(), wire::Compare::EQUAL);
    EXPECT_TRUE(compare.has_create_revision());
    const auto found = keys_.find(compare.key());
    const int64_t revision = found == keys_.end() ? 0 : found->second.create_revision();
    if (revision != compare.create_revision()) {
      const wire::RequestOp& failure = request->failure(0);
      return Range(context, &failure.request_range(),
                   reply->add_responses()->mutable_response_range());
    }
    const wire::PutRequest& put = request->success(0).request_put();
    if (leases_.count(put.lease()) == 0) {
      return {grpc::StatusCode::NOT_FOUND, "etcdserver: requested lease not found"};
    }
    wire::KeyValue& key = keys_[put.key()];
    key.set_key(put.key());
    key.set_value(put.value());
    key.set_lease(put.lease());
    key.set_create_revision(++revision_);
    reply->mutable_header()->set_revision(revision_);
    reply->set_succeeded(true);
    reply->add_responses()->mutable_response_put();
    return grpc::Status::OK;
  }

  grpc::Status LeaseGrant(grpc::ServerContext*, const wire::LeaseGrantRequest* request,
                          wire::LeaseGrantResponse* reply) override {
    reply->set_id(++last_lease_);
    reply->set_ttl(request->ttl());
    leases_[last_lease_] = request->ttl();
    return grpc::Status::OK;
  }

  grpc::Status LeaseRevoke(grpc::ServerContext*, const wire::LeaseRevokeRequest* request,
                           wire::LeaseRevokeResponse*) override {
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
      grpc::ServerReaderWriter<wire::LeaseKeepAliveResponse, wire::LeaseKeepAliveRequest>* stream)
      override {
    wire::LeaseKeepAliveRequest request;
    while (stream->Read(&request)) {
      wire::LeaseKeepAliveResponse reply;
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
  // A store makes only one call at a time.
  std::map<std::string, wire::KeyValue> keys_;
  std::map<int64_t, int64_t> leases_;
  int64_t last_lease_ = 0x70000000'00000000;
  int64_t revision_ = 0;
  bool is_overloaded_ = false;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

class EtcdLeaseStoreTest : public testing::Test {
 protected:
  LeaseAnswer Call(LeaseCall call) {
    call.timeout = absl::Seconds(30);
    return store_.Call(call);
  }
  LeaseAnswer Claim(int64_t lease, const std::string& value) {
    return Call({.kind = LeaseCall::Kind::kClaim, .lease = lease, .value = value});
  }
  int64_t Grant() {
    const LeaseAnswer answer =
        Call({.kind = LeaseCall::Kind::kGrant, .ttl = absl::Milliseconds(4100)});
    EXPECT_OK(answer.status);
    EXPECT_EQ(answer.ttl, absl::Seconds(5));
    return answer.lease;
  }

  FakeEtcd etcd_;
  EtcdLeaseStore store_{{etcd_.address(), "127.0.0.1:1"}, "a/key"};
};

TEST_F(EtcdLeaseStoreTest, OneOfTwoLeasesGetsTheKeyAndBothLearnWhose) {
  EXPECT_FALSE(Call({.kind = LeaseCall::Kind::kRead}).key.has_value());
  const int64_t first = Grant();
  const int64_t second = Grant();
  for (const int64_t lease : {first, second, first}) {
    const LeaseAnswer claimed = Claim(lease, absl::StrCat("by ", lease));
    ASSERT_OK(claimed.status);
    ASSERT_TRUE(claimed.key.has_value());
    EXPECT_EQ(claimed.key->lease, first);
    EXPECT_EQ(claimed.key->value, absl::StrCat("by ", first));
    EXPECT_EQ(claimed.key->revision, 1);
  }
  const LeaseAnswer read = Call({.kind = LeaseCall::Kind::kRead});
  ASSERT_TRUE(read.key.has_value());
  EXPECT_EQ(read.key->lease, first);
  EXPECT_EQ(read.key->revision, 1);
  ASSERT_OK(Call({.kind = LeaseCall::Kind::kRevoke, .lease = first}).status);
  EXPECT_EQ(Claim(second, "v").key->revision, 2) << "later keys have higher ones";
}

TEST_F(EtcdLeaseStoreTest, ARevokedLeaseTakesItsKeyWithItAndIsNotKeptAlive) {
  const int64_t lease = Grant();
  ASSERT_OK(Claim(lease, "v").status);
  const LeaseCall keep_alive = {.kind = LeaseCall::Kind::kKeepAlive, .lease = lease};
  EXPECT_EQ(Call(keep_alive).ttl, absl::Seconds(5));
  EXPECT_OK(Call({.kind = LeaseCall::Kind::kRevoke, .lease = lease}).status);
  EXPECT_FALSE(Call({.kind = LeaseCall::Kind::kRead}).key.has_value());
  const LeaseAnswer kept = Call(keep_alive);
  EXPECT_OK(kept.status);
  EXPECT_EQ(kept.ttl, absl::ZeroDuration());
  EXPECT_THAT(Claim(lease, "v").status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("lease not found")));
}

TEST_F(EtcdLeaseStoreTest, ErrorsNameEndpointAndCall) {
  EXPECT_EQ(store_.num_endpoints(), 2);
  EXPECT_THAT(
      Call({.kind = LeaseCall::Kind::kKeepAlive, .endpoint = 1, .lease = 1}).status,
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("etcd at 127.0.0.1:1: LeaseKeepAlive")));
  etcd_.SetOverloaded();
  const LeaseAnswer read = Call({.kind = LeaseCall::Kind::kRead});
  EXPECT_THAT(read.status, StatusIs(absl::StatusCode::kUnavailable,
                                    AllOf(HasSubstr(etcd_.address()), HasSubstr("Range"),
                                          HasSubstr("request timed out"))));
}

}  // namespace
}  // namespace lodestar
