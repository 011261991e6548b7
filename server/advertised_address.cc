#include "server/advertised_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, HOST_NAME_MAX) == 0 ? name : "localhost";
}

// The system's reason, empty if it works now.
std::string TryToBind(const ListenAddress& listen) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(listen.host.c_str(), absl::StrCat(listen.port).c_str(), &hints, &found);
  if (resolved != 0) return gai_strerror(resolved);
  std::string reason;
  const int descriptor = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  const int yes = 1;
  if (descriptor < 0 || setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 || ::listen(descriptor, 1) != 0) {
    reason = std::strerror(errno);
  }
  if (descriptor >= 0) close(descriptor);
  freeaddrinfo(found);
  return reason;
}

}  // namespace

std::string AdvertisedAddress(const NetworkConfig& network, int real_port) {
  ListenAddress address = network.listen;
  address.port = real_port;
  if (!network.advertise.empty()) {
    const absl::StatusOr<ListenAddress> advertise =
        ParseListenAddress("advertise", network.advertise);
    if (advertise.ok()) {
      address = *advertise;
      if (address.port == 0) address.port = real_port;
    }
  } else if (address.IsWildcard()) {
    address.host = HostName();
  }
  return address.ToString();
}

absl::Status ExplainListenFailure(const ListenAddress& listen) {
  const std::string reason = TryToBind(listen);
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", listen.ToString(), ": ",
                   reason.empty() ? "the port was taken a moment ago" : reason,
                   "; stop the process that has the port, or choose another --listen"));
}

}  // namespace lodestar
