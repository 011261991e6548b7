// Until when the new names of a certificate rest, because others have waited for one of its
// workers. Names cost nothing ("box.1", "box.2"), so a name that has not completed a round yet
// shares the rest of its certificate. Pure: no lock, clock or thread.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

class CertificateRests {
 public:
  // Others have waited that long for a worker of `certificate`: its new names rest for as long from
  // `now` on. Ignores workers without a certificate, which is an empty name.
  void OnHeldUp(const std::string& certificate, absl::Duration waited, absl::Time now);
  // Returns how long new names of `certificate` still rest; zero if they do not.
  absl::Duration Left(absl::string_view certificate, absl::Time now) const;

 private:
  // OnHeldUp() removes the entries whose time is over.
  std::map<std::string, absl::Time, std::less<>> until_;
};

}  // namespace lodestar
