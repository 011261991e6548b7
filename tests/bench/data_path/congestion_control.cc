// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/data_path/congestion_control.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/runtime/check.h"

namespace lodestar {
namespace {

constexpr size_t kMaxNameBytes = 16;  // TCP_CA_NAME_MAX of the kernel

std::string& Chosen() {
  // never freed, because sockets are made until the process ends
  static auto* const name = new std::string();
  return *name;
}

bool IsTcp(int domain, int type, int protocol) {
  return (domain == AF_INET || domain == AF_INET6) &&
         (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
         (protocol == 0 || protocol == IPPROTO_TCP);
}

void Choose(int socket, const std::string& name) {
  LODESTAR_CHECK(setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), name.size()) == 0)
      << "congestion control " << name << ": " << std::strerror(errno);
}

}  // namespace

void SetCongestionControl(const std::string& name) { Chosen() = name; }

std::set<std::string> CongestionControls() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    char name[kMaxNameBytes] = {};
    socklen_t size = sizeof(name);
    const int descriptor = std::stoi(entry.path().filename());
    // not a TCP socket
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) continue;
    names.insert(std::string(name, strnlen(name, size)));
  }
  return names;
}

}  // namespace lodestar

extern "C" int socket(int domain, int type, int protocol) noexcept {
  const auto made = static_cast<int>(syscall(SYS_socket, domain, type, protocol));
  const std::string& name = lodestar::Chosen();
  if (made >= 0 && !name.empty() && lodestar::IsTcp(domain, type, protocol)) {
    lodestar::Choose(made, name);
  }
  return made;
}
