// SPDX-License-Identifier: Apache-2.0

#include "common/storage/shared_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::storage {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Owns a descriptor, and closes it in the destructor unless it was released.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool ok() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

absl::Status SystemError(absl::string_view call) {
  return absl::UnavailableError(absl::StrCat("shared memory: ", call, ": ", std::strerror(errno)));
}

absl::Status NotHere(absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot share memory with this peer: ", why,
      "; the peer is on another machine or in another container, or belongs to another user"));
}

absl::Status CheckHandle(const SharedRegion::Handle& handle) {
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  const bool is_sane =
      handle.process_id > 0 && handle.process_id <= kMaxInt && handle.descriptor >= 0 &&
      handle.descriptor <= kMaxInt && handle.nonce.size() == SharedRegion::kNonceBytes &&
      handle.bytes > SharedRegion::kHeaderBytes && handle.bytes <= SharedRegion::kMaxBytes;
  if (is_sane) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "shared memory: the peer sent process ", handle.process_id, ", descriptor ",
      handle.descriptor, ", a nonce of ", handle.nonce.size(), " bytes and a size of ",
      handle.bytes,
      " bytes, which cannot describe a region. Use the same version of Lodestar on both sides"));
}

// Returns true if the descriptor is a regular file in memory. Call this before the file is opened
// for reading. Opening a pipe, a terminal or a device can block or have effects.
bool IsInMemoryFile(int descriptor) {
  struct stat facts = {};
  struct statfs filesystem = {};
  return fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) &&
         fstatfs(descriptor, &filesystem) == 0 && filesystem.f_type == TMPFS_MAGIC;
}

absl::StatusOr<char*> Map(int descriptor, uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, /*offset=*/0);
  if (memory == MAP_FAILED) return SystemError("mmap");
  // Huge pages cause fewer page faults and TLB misses. If the system does not have them, nothing is
  // lost.
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

}  // namespace

absl::StatusOr<SharedRegion> SharedRegion::Create(uint64_t payload_bytes) {
  if (payload_bytes == 0 || payload_bytes > kMaxBytes - kHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory of ", payload_bytes,
                                                   " bytes is not possible; allowed are 1 to ",
                                                   kMaxBytes - kHeaderBytes));
  }
  Handle handle;
  handle.bytes = payload_bytes + kHeaderBytes;
  handle.nonce.resize(kNonceBytes);
  if (getrandom(handle.nonce.data(), kNonceBytes, 0) != static_cast<ssize_t>(kNonceBytes)) {
    return SystemError("getrandom");
  }
  // If the file became larger than the limit of file sizes, ftruncate() would raise SIGXFSZ. That
  // ends a program that does not ignore it.
  if (const absl::Status fits =
          CheckFileSize("the messages of shared memory", static_cast<int64_t>(handle.bytes));
      !fits.ok()) {
    return absl::UnavailableError(absl::StrCat("shared memory: ", fits.message()));
  }
  Descriptor file(memfd_create("lodestar", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.ok()) return SystemError("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(handle.bytes)) != 0) {
    return SystemError("ftruncate");
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return SystemError("sealing");
  ASSIGN_OR_RETURN(char* const memory, Map(file.get(), handle.bytes));
  std::memcpy(memory, handle.nonce.data(), kNonceBytes);
  handle.process_id = getpid();
  handle.descriptor = file.get();
  return SharedRegion(std::move(handle), file.Release(), memory);
}

absl::StatusOr<SharedRegion> SharedRegion::Open(const Handle& handle) {
  RETURN_IF_ERROR(CheckHandle(handle));
  const std::string path = absl::StrCat("/proc/", handle.process_id, "/fd/", handle.descriptor);
  const Descriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!place.ok()) return NotHere(absl::StrCat(path, ": ", std::strerror(errno)));
  if (!IsInMemoryFile(place.get())) return NotHere(absl::StrCat(path, " is not a file in memory"));
  const Descriptor file(
      open(absl::StrCat("/proc/self/fd/", place.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (!file.ok()) return NotHere(absl::StrCat(path, ": ", std::strerror(errno)));
  // Files that were not made to be shared are not sealed. A seal also means that the size cannot
  // change.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return NotHere(absl::StrCat(path, " is not sealed, so it was not made for sharing"));
  }
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0 || static_cast<uint64_t>(facts.st_size) != handle.bytes) {
    return NotHere(absl::StrCat(path, " has ", facts.st_size, " bytes instead of the ",
                                handle.bytes, " that the peer named"));
  }
  ASSIGN_OR_RETURN(char* const memory, Map(file.get(), handle.bytes));
  SharedRegion region(handle, /*descriptor=*/-1, memory);
  if (std::memcmp(memory, handle.nonce.data(), kNonceBytes) != 0) {
    return NotHere(absl::StrCat(path, " belongs to another connection (its nonce differs)"));
  }
  return region;
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : handle_(std::move(other.handle_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(std::exchange(other.memory_, nullptr)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(memory_, other.memory_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (memory_ != nullptr) munmap(memory_, handle_.bytes);
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status SharedRegion::Touch() {
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory_, handle_.bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("cannot make shared memory of ", handle_.bytes,
                                                   " bytes: ", std::strerror(errno)));
#else
  return absl::OkStatus();
#endif
}

absl::StatusOr<absl::Span<char>> SharedRegion::Part(uint64_t offset, uint64_t bytes) const {
  const uint64_t payload = handle_.bytes - kHeaderBytes;
  if (bytes == 0 || offset > payload || bytes > payload - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: a message of ", bytes, " bytes at offset ", offset,
                     " does not fit into the region of ", payload, " bytes"));
  }
  return absl::MakeSpan(memory_ + kHeaderBytes + offset, bytes);
}

}  // namespace lodestar::storage
