// SPDX-License-Identifier: Apache-2.0

// Keeps the TlsContext of certificate files that are renewed while the server runs. Thread-safe.
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

namespace lodestar::http {

class TlsContextSource {
 public:
  using ReadFiles = std::function<absl::StatusOr<std::shared_ptr<const TlsContext>>(
      const security::CredentialFiles&)>;

  // Reads the files. Errors: those of `read`.
  static absl::StatusOr<std::unique_ptr<TlsContextSource>> Open(
      security::CredentialFiles files, ReadFiles read = TlsContext::Create);

  std::shared_ptr<const TlsContext> Current() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads the files if they have changed. If the new files cannot be used, logs that once, keeps
  // the current context, and tries again in the next call. Blocks on the disk.
  void Refresh() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  TlsContextSource(security::CredentialFiles files, ReadFiles read)
      : files_(std::move(files)), read_(std::move(read)) {}
  // Returns a text that changes whenever the files change.
  std::string Version() const;

  const security::CredentialFiles files_;
  const ReadFiles read_;
  mutable absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_);  // version of the files in current_
  // The last version of the files that could not be used and was logged.
  std::string refused_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsContext> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::http
