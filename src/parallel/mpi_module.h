// What the program and its module for MPI agree on. The module alone is linked with MPI, and loaded
// only for several hosts: the program starts on machines that have none.
#pragma once

#include <memory>

#include "parallel/host_transport.h"

namespace tw {

inline constexpr const char* kMpiModuleFile = "libtilewright_mpi.so";
inline constexpr const char* kConnectByMpiName = "tw_connect_by_mpi";

// Joins the processes of MPI_COMM_WORLD, once in a process's life. `version`: of the program, which
// must be the module's.
using ConnectByMpi = void (*)(const char* version,
                              Expected<std::unique_ptr<HostTransport>>& transport);

}  // namespace tw
