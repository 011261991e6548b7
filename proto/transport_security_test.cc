// SPDX-License-Identifier: Apache-2.0

#include "proto/transport_security.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "common/runtime/file_io.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "proto/enrollment.h"
#include "proto/status_mapping.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const security::Identity kServer{security::Role::kServer, "shard-0", "01"};
const security::Identity kWorker{security::Role::kWorker, "box", "02"};

// Answers every call with PERMISSION_DENIED and the caller's identity.
class Mirror final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Answer final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };
    const auto caller = CallerOf(*context->auth_context());
    std::string text = "plain";
    if (!caller.ok()) {
      text = caller.status().ToString();
    } else if (caller->has_value()) {
      text = security::TextOf(**caller);
    }
    return new Answer(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, text));
  }
};

class TransportSecurityTest : public ::testing::Test {
 protected:
  void Serve(const TransportSecurity& security, AccessCheck check = nullptr) {
    if (check == nullptr) {
      check = [](const security::Identity&, absl::string_view) { return absl::OkStatus(); };
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", security.MakeServerCredentials(std::move(check)),
                             &port_);
    server_.reset();
    mirror_ = std::make_unique<Mirror>();
    builder.RegisterCallbackGenericService(mirror_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  // Returns the answer to a call on a new connection.
  absl::Status Call(const TransportSecurity& security) {
    return Call(security.channel_credentials());
  }
  absl::Status Call(std::shared_ptr<grpc::ChannelCredentials> credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_),
                                                   std::move(credentials), arguments);
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const grpc::Slice nothing;
    grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer reply;
    absl::Notification done;
    grpc::Status status;
    stub.UnaryCall(&context, "/lodestar.v1.Any/Call", {}, &request, &reply,
                   [&](grpc::Status answer) {
                     status = std::move(answer);
                     done.Notify();
                   });
    done.WaitForNotification();
    return FromGrpcStatus(status);
  }

  const security::TestAuthority authority_;
  std::unique_ptr<Mirror> mirror_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TransportSecurityTest, BothSidesKnowEachOther) {
  Serve(TransportSecurity(authority_.FilesFor(kServer)));
  EXPECT_THAT(Call(TransportSecurity(authority_.FilesFor(kWorker))),
              StatusIs(absl::StatusCode::kPermissionDenied, "worker box"));
}

TEST_F(TransportSecurityTest, PlainTextIsAnonymous) {
  Serve(TransportSecurity());
  EXPECT_THAT(Call(TransportSecurity()), StatusIs(absl::StatusCode::kPermissionDenied, "plain"));
}

TEST_F(TransportSecurityTest, StrangersAndExpiredCertificatesGetNowhere) {
  Serve(TransportSecurity(authority_.FilesFor(kServer)));
  EXPECT_THAT(Call(TransportSecurity()), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(TransportSecurity(authority_.FilesFor(kWorker, -absl::Minutes(1)))),
              StatusIs(absl::StatusCode::kUnavailable));
  const security::TestAuthority other;
  EXPECT_THAT(Call(TransportSecurity(other.FilesFor(kWorker))),
              StatusIs(absl::StatusCode::kUnavailable));
  grpc::SslCredentialsOptions without_certificate;
  without_certificate.pem_root_certs = authority_.authority().certificate;
  EXPECT_THAT(Call(grpc::SslCredentials(without_certificate)),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(TransportSecurityTest, AServerOfAnotherClusterOrRoleIsNotSpokenTo) {
  Serve(TransportSecurity(security::TestAuthority().FilesFor(kServer)));
  EXPECT_THAT(Call(TransportSecurity(authority_.FilesFor(kWorker))),
              StatusIs(absl::StatusCode::kUnavailable));
  Serve(TransportSecurity(authority_.FilesFor(kWorker)));
  EXPECT_THAT(Call(TransportSecurity(authority_.FilesFor(kWorker))),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(TransportSecurityTest, ANewCertificateIsShownWithoutARestart) {
  const security::CredentialFiles server = authority_.FilesFor(kServer);
  const security::CredentialFiles worker = authority_.FilesFor(kWorker);
  Serve(TransportSecurity(server, FileWarnings::kNone, /*watch_seconds=*/1));
  const TransportSecurity security(worker, FileWarnings::kNone, /*watch_seconds=*/1);
  EXPECT_THAT(Call(security), StatusIs(absl::StatusCode::kPermissionDenied, "worker box"));
  authority_.Renew(server, {security::Role::kServer, "shard-0", "03"});
  authority_.Renew(worker, {security::Role::kWorker, "renamed", "04"});
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  absl::Status answer;
  do {
    answer = Call(security);
  } while (answer.message() == "worker box" && absl::Now() < give_up);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kPermissionDenied, "worker renamed"));
}

TEST_F(TransportSecurityTest, AServerShowsItsNewCertificateAfterItsTransportSecurityIsGone) {
  const security::CredentialFiles files = authority_.FilesFor(kServer);
  Serve(TransportSecurity(files, FileWarnings::kNone, /*watch_seconds=*/1));
  authority_.Renew(files, kServer);
  const auto renewed = ReadWholeFile(files.certificate, 1 << 20);
  ASSERT_OK(renewed);
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  std::string shown;
  while (!absl::StartsWith(shown, *renewed) && absl::Now() < give_up) {
    const auto greeting = Greet(absl::StrCat("127.0.0.1:", port_), absl::Seconds(20));
    ASSERT_OK(greeting);
    shown = greeting->certificate;  // and the authority behind it
  }
  EXPECT_THAT(shown, StartsWith(*renewed));
}

TEST_F(TransportSecurityTest, EveryCallIsJudgedBeforeItsHandler) {
  std::string seen;
  Serve(TransportSecurity(authority_.FilesFor(kServer)),
        [&seen](const security::Identity& caller, absl::string_view method) -> absl::Status {
          seen = absl::StrCat(security::TextOf(caller), " calls ", method);
          return absl::UnauthenticatedError("revoked");
        });
  EXPECT_THAT(Call(TransportSecurity(authority_.FilesFor(kWorker))),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("revoked")));
  EXPECT_EQ(seen, "worker box calls /lodestar.v1.Any/Call");
}

}  // namespace
}  // namespace lodestar::wire
