// The TlsContext of files that are renewed while the server runs. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/http/tls_session.h"
#include "common/security/credentials.h"

namespace lodestar {

class TlsContextSource {
 public:
  using ReadFiles =
      std::function<absl::StatusOr<std::shared_ptr<const TlsContext>>(const CredentialFiles&)>;

  // Errors: those of `read`.
  static absl::StatusOr<std::unique_ptr<TlsContextSource>> Open(
      CredentialFiles files, ReadFiles read = TlsContext::Create);

  std::shared_ptr<const TlsContext> Current() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads the files if they have changed since they were taken. What cannot be used is logged once,
  // and tried again the next time; what was there before stays in use. Blocks for the disk.
  void Refresh() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  TlsContextSource(CredentialFiles files, ReadFiles read)
      : files_(std::move(files)), read_(std::move(read)) {}
  // Returns the version of the files, which changes with what is in them.
  std::string Version() const;

  const CredentialFiles files_;
  const ReadFiles read_;
  mutable absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_);  // of current_
  std::string refused_ ABSL_GUARDED_BY(mutex_);  // that was logged last
  std::shared_ptr<const TlsContext> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
