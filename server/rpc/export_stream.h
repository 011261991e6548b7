// One Export stream, fed by a thread that may block.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar {

// Keeps itself alive until gRPC is done with it. WriteBlocking() and End() are for one thread.
class ExportStream : public grpc::ServerWriteReactor<v1::ExportChunk> {
 public:
  static std::shared_ptr<ExportStream> Create();

  // Returns when gRPC has taken the bytes, so that memory does not grow with a slow reader. Errors:
  // Cancelled if the reader has gone.
  absl::Status WriteBlocking(absl::string_view bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override { self_.reset(); }

 private:
  ExportStream() = default;

  std::shared_ptr<ExportStream> self_;
  absl::Mutex mutex_;
  v1::ExportChunk chunk_;  // gRPC's while is_writing_
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar
