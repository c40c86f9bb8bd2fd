# Third-party libraries, all from the distribution's packages (see docs/dependencies.md).
include_guard()

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(tl-expected 1.0 REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio and Beast
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(CURL 7.85 REQUIRED)
if(TW_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# Only the module for several hosts is linked with MPI (src/parallel/mpi_transport.cc).
set(TW_MPI AUTO CACHE STRING "Build the module for several hosts: AUTO (where MPI is), ON or OFF")
set_property(CACHE TW_MPI PROPERTY STRINGS AUTO ON OFF)
set(TW_MPI_FOUND OFF)
if(TW_MPI STREQUAL "ON")
  find_package(MPI REQUIRED COMPONENTS C)
elseif(TW_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()
if(TW_MPI AND MPI_C_FOUND)
  set(TW_MPI_FOUND ON)
endif()
