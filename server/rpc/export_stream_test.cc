// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/export_stream.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::rpc {
namespace {

// EndlessExports fills every export without end, until the stream returns an error.
class EndlessExports final : public v1::AdminService::CallbackService {
 public:
  explicit EndlessExports(absl::Duration patience) : patience_(patience) {}
  ~EndlessExports() override { feeder_.join(); }

  grpc::ServerWriteReactor<v1::ExportChunk>* Export(grpc::CallbackServerContext* context,
                                                    const v1::ExportRequest*) override {
    const std::shared_ptr<ExportStream> stream = ExportStream::Create(context, patience_);
    feeder_ = std::thread([this, stream] {
      const std::string piece(1 << 20, 'x');
      while (outcome_.ok()) outcome_ = stream->WriteBlocking(piece);
      stream->End(outcome_);
      over_.Notify();
    });
    return stream.get();
  }

  absl::Status Outcome() {
    over_.WaitForNotification();
    return outcome_;
  }

 private:
  const absl::Duration patience_;
  std::thread feeder_;
  absl::Status outcome_;
  absl::Notification over_;
};

// Returns the status with which an export of `service` ends. Calls `read` with its stream.
absl::Status OutcomeOf(
    EndlessExports& service,
    const std::function<void(grpc::ClientContext&, grpc::ClientReader<v1::ExportChunk>&)>& read) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::AdminService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto reader = stub->Export(&context, {});
  read(context, *reader);
  const absl::Status outcome = service.Outcome();
  context.TryCancel();
  reader->Finish();
  return outcome;
}

TEST(ExportStreamTest, ReaderThatDoesNotReadIsNotWaitedForWithoutEnd) {
  EndlessExports service(absl::Milliseconds(1));
  EXPECT_THAT(OutcomeOf(service, [](auto&, auto&) {}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, testing::HasSubstr("read nothing")));
}

TEST(ExportStreamTest, ReaderThatGoesEndsIt) {
  EndlessExports service(absl::InfiniteDuration());
  EXPECT_THAT(OutcomeOf(service,
                        [](grpc::ClientContext& context, auto& reader) {
                          v1::ExportChunk chunk;
                          EXPECT_TRUE(reader.Read(&chunk));
                          context.TryCancel();
                        }),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace lodestar::rpc
