// Hosts on virtual links of limited rate and some delay: a TUN device per host, and a switch
// between them. Every host has a link to the switch, of --megabits in each direction; a packet
// waits until the packets before it are through both links and then for half of --round_trip. A
// link's queue holds kQueue and drops what comes beyond, as a router does.
//
//   virtual_links --hosts=3 --device=lsb --megabits=100 --round_trip=50ms
//
// Makes the devices lsb0, lsb1, ... and prints "ready"; whoever started it moves each into the
// network namespace of its host and gives device i the address A.B.C.(i + 1). Runs until killed.
// Needs the right to make network devices.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/check.h"

ABSL_FLAG(int, hosts, 3, "number of hosts");
ABSL_FLAG(std::string, device, "lsb", "devices are named with this and a number from 0");
ABSL_FLAG(double, megabits, 0, "per second, of each link in each direction; 0: no limit");
ABSL_FLAG(absl::Duration, round_trip, absl::ZeroDuration(), "delay between two hosts and back");

namespace lodestar {
namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

constexpr size_t kMaxPacket = 65536;
constexpr int kBurst = 32;  // packets that are read from a device before the others have a turn
constexpr Nanoseconds kQueue = std::chrono::milliseconds(100);
constexpr Nanoseconds kIdle = std::chrono::seconds(1);
// IPv4 header.
constexpr size_t kLastByteOfDestination = 19;
constexpr unsigned char kVersion4 = 4;

int OpenTun(const std::string& name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  LODESTAR_CHECK(fd >= 0) << "/dev/net/tun: " << std::strerror(errno);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  LODESTAR_CHECK(ioctl(fd, TUNSETIFF, &request) == 0) << name << ": " << std::strerror(errno);
  return fd;
}

// One direction of a link, in time: when it is free again.
class Line {
 public:
  // When a packet that comes at `arrival` is through.
  Clock::time_point Send(Clock::time_point arrival, size_t bytes, double megabits) {
    const Nanoseconds duration(
        megabits > 0 ? static_cast<int64_t>(8e3 * static_cast<double>(bytes) / megabits) : 0);
    free_at_ = std::max(arrival, free_at_) + duration;
    return free_at_;
  }
  Nanoseconds Backlog(Clock::time_point now) const { return free_at_ - now; }

 private:
  Clock::time_point free_at_;
};

struct Packet {
  Clock::time_point due;
  std::string bytes;
};

struct Host {
  int fd = -1;
  Line up, down;
  std::deque<Packet> arriving;  // by time
};

class Switch {
 public:
  Switch()
      : hosts_(absl::GetFlag(FLAGS_hosts)),
        megabits_(absl::GetFlag(FLAGS_megabits)),
        delay_(absl::ToChronoNanoseconds(absl::GetFlag(FLAGS_round_trip) / 2)),
        buffer_(kMaxPacket) {
    for (size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i].fd = OpenTun(absl::StrCat(absl::GetFlag(FLAGS_device), i));
    }
  }

  [[noreturn]] void Run() {
    std::vector<pollfd> polled;
    for (const Host& host : hosts_) polled.push_back({host.fd, POLLIN, 0});
    while (true) {
      const Nanoseconds wait = DeliverDue();
      const timespec timeout = {.tv_sec = wait.count() / 1'000'000'000,
                                .tv_nsec = wait.count() % 1'000'000'000};
      ppoll(polled.data(), polled.size(), &timeout, nullptr);
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if (polled[i].revents != 0) ReadFrom(hosts_[i]);
      }
    }
  }

 private:
  // Returns how long nothing else is due.
  Nanoseconds DeliverDue() {
    Nanoseconds next = kIdle;
    for (Host& host : hosts_) {
      while (!host.arriving.empty()) {
        const Packet& packet = host.arriving.front();
        const Nanoseconds left = packet.due - Clock::now();
        if (left > Nanoseconds::zero()) {
          next = std::min(next, left);
          break;
        }
        // A packet that the host does not take is lost, as on a real link.
        [[maybe_unused]] const ssize_t written =
            write(host.fd, packet.bytes.data(), packet.bytes.size());
        host.arriving.pop_front();
      }
    }
    return next;
  }

  void ReadFrom(Host& from) {
    for (int i = 0; i < kBurst; ++i) {
      const ssize_t size = read(from.fd, buffer_.data(), buffer_.size());
      if (size <= 0) return;
      const auto bytes = static_cast<size_t>(size);
      if (bytes <= kLastByteOfDestination) continue;
      if (static_cast<unsigned char>(buffer_[0]) >> 4 != kVersion4) continue;
      const size_t to = static_cast<unsigned char>(buffer_[kLastByteOfDestination]) - size_t{1};
      if (to < hosts_.size()) Forward(from, hosts_[to], {buffer_.data(), bytes});
    }
  }

  void Forward(Host& from, Host& to, std::string packet) {
    const Clock::time_point now = Clock::now();
    if (from.up.Backlog(now) > kQueue || to.down.Backlog(now) > kQueue) return;
    const Clock::time_point at_switch = from.up.Send(now, packet.size(), megabits_);
    const Clock::time_point through = to.down.Send(at_switch, packet.size(), megabits_);
    to.arriving.push_back({through + delay_, std::move(packet)});
  }

  std::vector<Host> hosts_;
  const double megabits_;
  const Nanoseconds delay_;
  std::vector<char> buffer_;
};

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  lodestar::Switch network;
  std::printf("ready\n");
  std::fflush(stdout);
  network.Run();
}
