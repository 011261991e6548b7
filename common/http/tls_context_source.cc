// SPDX-License-Identifier: Apache-2.0

#include "common/http/tls_context_source.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"

namespace lodestar::http {

absl::StatusOr<std::unique_ptr<TlsContextSource>> TlsContextSource::Open(
    security::CredentialFiles files, ReadFiles read) {
  std::unique_ptr<TlsContextSource> source(new TlsContextSource(std::move(files), std::move(read)));
  const std::string version = source->Version();
  ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> first, source->read_(source->files_));
  absl::MutexLock lock(&source->mutex_);
  source->version_ = version;
  source->current_ = std::move(first);
  return source;
}

std::shared_ptr<const TlsContext> TlsContextSource::Current() const {
  absl::MutexLock lock(&mutex_);
  return current_;
}

void TlsContextSource::Refresh() {
  // Gets the version before the files are read. If the files change meanwhile, the next Refresh()
  // notices the change.
  const std::string version = Version();
  {
    absl::MutexLock lock(&mutex_);
    if (version == version_) return;
  }
  absl::StatusOr<std::shared_ptr<const TlsContext>> next = read_(files_);
  absl::MutexLock lock(&mutex_);
  if (next.ok()) {
    version_ = version;
    current_ = *std::move(next);
  } else if (std::exchange(refused_, version) != version) {
    logging::LogWarn("--http keeps its present certificate, because the new one cannot be used: {}",
                     next.status().message());
  }
}

std::string TlsContextSource::Version() const {
  std::string version;
  for (const std::string& path : {files_.key, files_.certificate, files_.authority}) {
    struct stat file {};
    if (stat(path.c_str(), &file) != 0) file = {};
    absl::StrAppend(&version, file.st_ino, ":", file.st_size, ":", file.st_mtim.tv_sec, ".",
                    file.st_mtim.tv_nsec, " ");
  }
  return version;
}

}  // namespace lodestar::http
