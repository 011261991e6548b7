// SPDX-License-Identifier: Apache-2.0

// ExportStream is one Export stream, filled by a thread that may block.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar::rpc {

// The object keeps itself alive until gRPC is done with it. Only one thread may use Describe(),
// WriteBlocking() and End(), and End() comes last.
class ExportStream : public grpc::ServerWriteReactor<v1::ExportChunk> {
 public:
  // `patience` is the maximum time in which the client must read each piece.
  static std::shared_ptr<ExportStream> Create(grpc::CallbackServerContext* context,
                                              absl::Duration patience);

  // Sets the source, which is sent with the first piece. Must come before the first
  // WriteBlocking().
  void Describe(const v1::ExportSource& source) { *chunk_.mutable_source() = source; }
  // Writes a piece, and returns when gRPC has taken the bytes, so that memory does not grow with a
  // slow reader. Errors: Cancelled (the reader has gone); DeadlineExceeded (the reader does not
  // read, and the call is ended).
  absl::Status WriteBlocking(absl::string_view bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override { self_.reset(); }

 private:
  ExportStream(grpc::CallbackServerContext* context, absl::Duration patience)
      : context_(context), patience_(patience) {}

  grpc::CallbackServerContext* const context_;  // valid until OnDone()
  const absl::Duration patience_;
  std::shared_ptr<ExportStream> self_;
  absl::Mutex mutex_;
  v1::ExportChunk chunk_;  // belongs to gRPC while is_writing_
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::rpc
