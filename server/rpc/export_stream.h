// ExportStream is one Export stream, fed by a thread that may block.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar::rpc {

// Keeps itself alive until gRPC is done with it. Describe(), WriteBlocking() and End() are for one
// thread, and End() comes last.
class ExportStream : public grpc::ServerWriteReactor<v1::ExportChunk> {
 public:
  // A reader may take `patience` for each piece.
  static std::shared_ptr<ExportStream> Create(grpc::CallbackServerContext* context,
                                              absl::Duration patience);

  // Must come before the first WriteBlocking(), whose piece the source goes with.
  void Describe(const v1::ExportSource& source) { *chunk_.mutable_source() = source; }
  // Returns when gRPC has taken the bytes, so that memory does not grow with a slow reader. Errors:
  // Cancelled if the reader has gone; DeadlineExceeded if it does not read, which ends the call.
  absl::Status WriteBlocking(absl::string_view bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override { self_.reset(); }

 private:
  ExportStream(grpc::CallbackServerContext* context, absl::Duration patience)
      : context_(context), patience_(patience) {}

  grpc::CallbackServerContext* const context_;  // lives until OnDone()
  const absl::Duration patience_;
  std::shared_ptr<ExportStream> self_;
  absl::Mutex mutex_;
  v1::ExportChunk chunk_;  // gRPC's while is_writing_
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::rpc
