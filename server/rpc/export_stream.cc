// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/export_stream.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {

std::shared_ptr<ExportStream> ExportStream::Create(grpc::CallbackServerContext* context,
                                                   absl::Duration patience) {
  std::shared_ptr<ExportStream> stream(new ExportStream(context, patience));
  stream->self_ = stream;
  return stream;
}

absl::Status ExportStream::WriteBlocking(absl::string_view bytes) {
  const auto may_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !is_writing_; };
  absl::MutexLock lock(&mutex_);
  if (has_gone_) return absl::CancelledError("the program that reads the export has ended");
  chunk_.set_data(std::string(bytes));
  is_writing_ = true;
  StartWrite(&chunk_);
  if (!mutex_.AwaitWithTimeout(absl::Condition(&may_go_on), patience_)) {
    context_->TryCancel();
    return absl::DeadlineExceededError(
        absl::StrCat("the program that reads the export has read nothing for ",
                     absl::FormatDuration(patience_)));
  }
  chunk_.clear_source();
  return has_gone_ ? absl::CancelledError("the program that reads the export has ended")
                   : absl::OkStatus();
}

void ExportStream::End(const absl::Status& status) { Finish(wire::ToGrpcStatus(status)); }

void ExportStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  is_writing_ = false;
  has_gone_ |= !ok;
}

void ExportStream::OnCancel() {
  absl::MutexLock lock(&mutex_);
  has_gone_ = true;
}

}  // namespace lodestar::rpc
