// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/data_path/one_message.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/check.h"
#include "proto/bulk_options.h"

namespace lodestar {

class OneMessageServer::Service final : public v1::ParameterService::Service {
 public:
  grpc::Status Push(grpc::ServerContext* /*context*/, grpc::ServerReader<v1::PushChunk>* reader,
                    v1::PushReply* /*reply*/) override {
    v1::PushChunk chunk;
    while (reader->Read(&chunk)) {
      absl::MutexLock lock(&mutex_);
      tensor_.resize(chunk.data().size());
      std::memcpy(tensor_.data(), chunk.data().data(), chunk.data().size());
    }
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mutex_;
  std::vector<char> tensor_ ABSL_GUARDED_BY(mutex_);
};

OneMessageServer::OneMessageServer() : service_(std::make_unique<Service>()) {
  grpc::ServerBuilder builder;
  wire::ApplyServerOptions(builder);
  builder.SetMaxReceiveMessageSize(-1);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  LODESTAR_CHECK(server_ != nullptr && port != 0);
  address_ = absl::StrCat("127.0.0.1:", port);
}

OneMessageServer::~OneMessageServer() { server_->Shutdown(); }

OneMessageClient::OneMessageClient(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  stub_ = v1::ParameterService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

void OneMessageClient::Send(absl::Span<const char> source) {
  grpc::ClientContext context;
  v1::PushReply reply;
  const auto writer = stub_->Push(&context, &reply);
  v1::PushChunk chunk;
  chunk.set_data(source.data(), source.size());
  writer->Write(chunk);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  LODESTAR_CHECK(status.ok()) << status.error_message();
}

}  // namespace lodestar
