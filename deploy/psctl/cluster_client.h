// Calls of StatusService and AdminService, blocking, with deadlines and errors for people.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/address_list.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar {

class ClusterClient {
 public:
  // `servers`: the first that answers as a ps_server is asked; one that is not the coordinator
  // sends on to it.
  explicit ClusterClient(AddressList servers);

  absl::StatusOr<v1::ClusterStatus> GetStatus();
  // Calls `show` for each status until it returns false or the server ends the stream.
  absl::Status WatchStatus(absl::Duration interval,
                           const std::function<bool(const v1::ClusterStatus&)>& show);
  // Shown about once a second while the answer takes that long.
  using Meanwhile = std::function<void(const v1::ClusterStatus&)>;
  // Blocks until the checkpoint is there, or has failed.
  absl::StatusOr<v1::CheckpointReply> Checkpoint(const Meanwhile& meanwhile);
  // Calls `take` for each part of a safetensors file with the weights, in order, until it returns
  // false or the file is whole. Returns what was exported.
  absl::StatusOr<v1::ExportSource> Export(absl::FunctionRef<bool(absl::string_view)> take);
  // Blocks until the job is over.
  absl::StatusOr<v1::StopReply> Stop(const std::string& reason, const Meanwhile& meanwhile);

  // Of the server that has answered last.
  const std::string& server() const { return server_; }

 private:
  void Connect(const std::string& server);
  // Before a call that may not be made twice, if there are several to choose from.
  absl::Status FindServer();
  // Starts a call, and has the function called at its end.
  using Begin =
      absl::FunctionRef<void(grpc::ClientContext*, std::function<void(grpc::Status)> done)>;
  grpc::Status CallAndWatch(Begin begin, const Meanwhile& meanwhile);
  // Makes the call, and again with the coordinator if the server sends on to it.
  absl::Status Call(absl::FunctionRef<grpc::Status()> call);
  // "ps_server at HOST:PORT: ...", and what to look at where nobody has answered.
  absl::Status Explain(const grpc::Status& status) const;

  AddressList servers_;
  std::string server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::StatusService::Stub> status_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

}  // namespace lodestar
