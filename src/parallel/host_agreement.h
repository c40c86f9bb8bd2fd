// What all hosts must have in common, compared before they load anything.
#pragma once

#include <string>
#include <vector>

#include "parallel/host_link.h"

namespace tw {

struct HostField {
  std::string name;   // for the error: a flag, or what it is
  std::string value;  // without null characters
};

// All hosts give the same names in the same order, which depends on the program's version alone:
// that must be the first. Where a value is not the first host's, all hosts fail, with the host, the
// field and both values.
Status compare_hosts(HostLink& link, const std::vector<HostField>& fields);

}  // namespace tw
