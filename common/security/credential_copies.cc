// SPDX-License-Identifier: Apache-2.0

#include "common/security/credential_copies.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lodestar::security {
namespace {

std::string PathOf(const FileDescriptor& file) {
  return absl::StrCat("/proc/self/fd/", file.get());
}

// Creates a file in memory with the content `text`. If that fails, the result is not open.
FileDescriptor InMemory(absl::string_view text) {
  FileDescriptor file(memfd_create("lodestar_credentials", MFD_CLOEXEC));
  if (!file.is_open()) return file;
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      access(PathOf(file).c_str(), R_OK) != 0) {
    file.Reset();
  }
  return file;
}

}  // namespace

CredentialCopies::CredentialCopies(CredentialFiles source) : source_(std::move(source)) {
  // If the files of `source` cannot be used, each copy contains one line end. A copy must not be
  // empty, because gRPC ends the process if a certificate is empty.
  if (!Refresh()) Put({.key = "\n", .certificate = "\n", .authority = "\n"});
}

CredentialFiles CredentialCopies::paths() const {
  if (!key_.is_open()) return source_;
  return {.key = PathOf(key_),
          .certificate = PathOf(certificate_),
          .authority = PathOf(authority_),
          .is_kept = source_.is_kept};
}

bool CredentialCopies::Refresh() {
  absl::StatusOr<Credentials> next = ReadCredentials(source_);
  if (!next.ok() || *next == current_ || !CheckCredentials(*next, source_).ok()) return false;
  if (!Put(*next)) return false;
  current_ = *std::move(next);
  return true;
}

bool CredentialCopies::Put(const Credentials& credentials) {
  std::array<FileDescriptor, 3> fresh = {InMemory(credentials.key),
                                         InMemory(credentials.certificate),
                                         InMemory(credentials.authority)};
  const std::array<FileDescriptor*, 3> places = {&key_, &certificate_, &authority_};
  for (const FileDescriptor& file : fresh) {
    if (!file.is_open()) return false;
  }
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (!places[i]->is_open()) {
      *places[i] = std::move(fresh[i]);
    } else if (dup3(fresh[i].get(), places[i]->get(), O_CLOEXEC) < 0) {
      return false;
    }
  }
  return true;
}

}  // namespace lodestar::security
