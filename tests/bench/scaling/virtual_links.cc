// SPDX-License-Identifier: Apache-2.0

// Simulates hosts on virtual links of limited rate and with some delay: a TUN device per host, and
// a switch between them. Every host has a link to the switch, of --megabits in each direction. A
// packet waits until the packets before it are through both links, and then for half of
// --round_trip. The queue of a link holds kQueue and drops further packets, as a router does. In
// addition, every link loses a packet with probability --loss, independently in each direction.
// --seed chooses which packets are lost, by their order on the link.
//
//   virtual_links --hosts=3 --device=lsb --megabits=100 --round_trip=50ms --loss=0.01
//
// SIGUSR1 cuts all links: packets under way, and all packets until SIGUSR2, are lost without
// notice, so that connections stay half open.
//
// Makes the devices lsb0, lsb1, ... and prints "ready". The program that started it moves each
// device into the network namespace of its host, and gives device i the address A.B.C.(i + 1). Runs
// until killed. Needs the permission to make network devices.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/runtime/check.h"

ABSL_FLAG(int, hosts, 3, "number of hosts");
ABSL_FLAG(std::string, device, "lsb", "devices are named with this and a number from 0");
ABSL_FLAG(double, megabits, 0, "per second, of each link in each direction; 0: no limit");
ABSL_FLAG(absl::Duration, round_trip, absl::ZeroDuration(), "delay between two hosts and back");
ABSL_FLAG(double, loss, 0, "probability that a link loses a packet, per link and direction");
ABSL_FLAG(uint64_t, seed, 1, "of the generator that chooses which packets are lost");

namespace lodestar {
namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

constexpr int kMostHosts = 254;  // limit of the last byte of an address
constexpr size_t kMaxPacket = 65536;
constexpr int kBurst = 32;  // packets read from one device before the next device has its turn
constexpr Nanoseconds kQueue = std::chrono::milliseconds(100);
constexpr Nanoseconds kIdle = std::chrono::seconds(1);
// Facts about the IPv4 header.
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

// Returns a descriptor that is readable once a signal that cuts or mends links has come. These
// signals have no other effect.
int OpenSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigaddset(&signals, SIGUSR2);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  LODESTAR_CHECK(fd >= 0) << "signalfd: " << std::strerror(errno);
  return fd;
}

// The values of the flags. Ends the program if they are not valid.
struct Options {
  int hosts = absl::GetFlag(FLAGS_hosts);
  std::string device = absl::GetFlag(FLAGS_device);
  double megabits = absl::GetFlag(FLAGS_megabits);
  absl::Duration round_trip = absl::GetFlag(FLAGS_round_trip);
  double loss = absl::GetFlag(FLAGS_loss);
  uint64_t seed = absl::GetFlag(FLAGS_seed);
};

// Returns an empty text if a network can be made of `options`, else the reason why not.
std::string WhatIsWrongWith(const Options& options) {
  if (options.hosts < 1 || options.hosts > kMostHosts) {
    return absl::StrCat("--hosts=", options.hosts, ": give 1 to ", kMostHosts);
  }
  if (!(options.megabits >= 0) || std::isinf(options.megabits)) {
    return absl::StrCat("--megabits=", options.megabits, ": give 0 (no limit) or more");
  }
  if (options.round_trip < absl::ZeroDuration() || options.round_trip == absl::InfiniteDuration()) {
    return absl::StrCat("--round_trip=", absl::FormatDuration(options.round_trip),
                        ": give 0 or more, such as 50ms");
  }
  if (!(options.loss >= 0 && options.loss < 1)) {
    return absl::StrCat("--loss=", options.loss,
                        ": give a probability of at least 0 and below 1; 1 % is 0.01");
  }
  return "";
}

// One direction of a link. It knows when it is free again, and which packets it loses.
class Line {
 public:
  // With the same seed and loss, the same packets are lost, counted from the first.
  Line(uint64_t seed, double loss) : random_(seed), loses_(loss) {}

  bool Loses() { return loses_(random_); }
  // Returns when a packet that comes at `arrival` is through.
  Clock::time_point Send(Clock::time_point arrival, size_t bytes, double megabits) {
    const Nanoseconds duration(
        megabits > 0 ? static_cast<int64_t>(8e3 * static_cast<double>(bytes) / megabits) : 0);
    free_at_ = std::max(arrival, free_at_) + duration;
    return free_at_;
  }
  Nanoseconds Backlog(Clock::time_point now) const { return free_at_ - now; }

 private:
  std::mt19937_64 random_;
  std::bernoulli_distribution loses_;
  Clock::time_point free_at_;
};

struct Packet {
  Clock::time_point due;
  std::string bytes;
};

struct Host {
  int fd;
  Line up, down;
  std::deque<Packet> arriving;  // in the order of their times
};

class Switch {
 public:
  explicit Switch(const Options& options)
      : megabits_(options.megabits),
        delay_(absl::ToChronoNanoseconds(options.round_trip / 2)),
        buffer_(kMaxPacket) {
    // Each line has a seed of its own, so that no two lines lose the same packets.
    std::mt19937_64 seeds(options.seed);
    for (int i = 0; i < options.hosts; ++i) {
      const uint64_t up = seeds(), down = seeds();
      hosts_.push_back({OpenTun(absl::StrCat(options.device, i)),
                        Line(up, options.loss),
                        Line(down, options.loss),
                        {}});
    }
  }

  [[noreturn]] void Run() {
    std::vector<pollfd> polled = {{signals_, POLLIN, 0}};
    for (const Host& host : hosts_) polled.push_back({host.fd, POLLIN, 0});
    while (true) {
      const Nanoseconds wait = DeliverDue();
      const timespec timeout = {.tv_sec = wait.count() / 1'000'000'000,
                                .tv_nsec = wait.count() % 1'000'000'000};
      ppoll(polled.data(), polled.size(), &timeout, nullptr);
      if (polled[0].revents != 0) ObeySignals();
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if (polled[i + 1].revents != 0) ReadFrom(hosts_[i]);
      }
    }
  }

 private:
  // Delivers the packets that are due. Returns how long no other packet is due.
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
        // If the host does not take a packet, the packet is lost, as on a real link.
        [[maybe_unused]] const ssize_t written =
            write(host.fd, packet.bytes.data(), packet.bytes.size());
        host.arriving.pop_front();
      }
    }
    return next;
  }

  void ObeySignals() {
    signalfd_siginfo signal;
    while (read(signals_, &signal, sizeof(signal)) == sizeof(signal)) {
      is_cut_ = signal.ssi_signo == SIGUSR1;
    }
    if (!is_cut_) return;
    for (Host& host : hosts_) host.arriving.clear();
  }

  void ReadFrom(Host& from) {
    for (int i = 0; i < kBurst; ++i) {
      const ssize_t size = read(from.fd, buffer_.data(), buffer_.size());
      if (size <= 0) return;
      const auto bytes = static_cast<size_t>(size);
      if (is_cut_ || bytes <= kLastByteOfDestination) continue;
      if (static_cast<unsigned char>(buffer_[0]) >> 4 != kVersion4) continue;
      const size_t to = static_cast<unsigned char>(buffer_[kLastByteOfDestination]) - size_t{1};
      if (to < hosts_.size()) Forward(from, hosts_[to], {buffer_.data(), bytes});
    }
  }

  void Forward(Host& from, Host& to, std::string packet) {
    const Clock::time_point now = Clock::now();
    if (from.up.Backlog(now) > kQueue || to.down.Backlog(now) > kQueue) return;
    // A packet that is lost still takes its time on the link.
    const Clock::time_point at_switch = from.up.Send(now, packet.size(), megabits_);
    if (from.up.Loses()) return;
    const Clock::time_point through = to.down.Send(at_switch, packet.size(), megabits_);
    if (to.down.Loses()) return;
    to.arriving.push_back({through + delay_, std::move(packet)});
  }

  const int signals_ = OpenSignals();
  bool is_cut_ = false;
  std::vector<Host> hosts_;
  const double megabits_;
  const Nanoseconds delay_;
  std::vector<char> buffer_;
};

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const lodestar::Options options;
  if (const std::string wrong = lodestar::WhatIsWrongWith(options); !wrong.empty()) {
    std::fprintf(stderr, "virtual_links: %s\n", wrong.c_str());
    return 2;
  }
  lodestar::Switch network(options);
  std::printf("ready\n");
  std::fflush(stdout);
  network.Run();
}
