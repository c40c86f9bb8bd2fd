# Helpers that give every target of the project the same flags.
include_guard()

find_program(TW_CCACHE ccache)
if(TW_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TW_CCACHE})
endif()

add_library(tw_flags INTERFACE)
target_compile_options(tw_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -Wno-unused-parameter $<$<BOOL:${TW_WERROR}>:-Werror>)
target_include_directories(tw_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
option(TW_WERROR "Treat compiler warnings as errors" ON)
if(TW_SANITIZE)
  target_compile_options(tw_flags INTERFACE -fsanitize=${TW_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1)
  target_link_options(tw_flags INTERFACE -fsanitize=${TW_SANITIZE})
endif()

# While folders are being written: sources that are not there yet are left out with a warning.
function(tw_existing_sources out)
  set(found "")
  foreach(source ${ARGN})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source} OR EXISTS ${source})
      list(APPEND found ${source})
    else()
      message(WARNING "missing source ${source}")
    endif()
  endforeach()
  if(NOT found)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.cc "")
    set(found ${CMAKE_BINARY_DIR}/empty.cc)
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# tw_library(name SOURCES a.cc ... DEPS tw_core ...): one floor's static library.
function(tw_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  tw_existing_sources(arg_SOURCES ${arg_SOURCES})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC tw_flags ${arg_DEPS})
endfunction()

# tw_isa_sources(target ISA_FLAGS "..." SOURCES ...): sources of one instruction set, compiled with
# its flags alone. They must export no weak symbols; tests/kernels checks that with nm.
function(tw_isa_sources target)
  cmake_parse_arguments(arg "" "" "FLAGS;SOURCES" ${ARGN})
  tw_existing_sources(arg_SOURCES ${arg_SOURCES})
  target_sources(${target} PRIVATE ${arg_SOURCES})
  set_source_files_properties(${arg_SOURCES} TARGET_DIRECTORY ${target}
    PROPERTIES COMPILE_OPTIONS "${arg_FLAGS}")
endfunction()

# tw_test(name SOURCES ... DEPS ...): a GoogleTest executable, one ctest entry per test program.
function(tw_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;ARGS" ${ARGN})
  tw_existing_sources(arg_SOURCES ${arg_SOURCES})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tw_flags ${arg_DEPS} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE TW_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()

# tw_bench(name SOURCES ... DEPS ...): a benchmark program.
function(tw_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  tw_existing_sources(arg_SOURCES ${arg_SOURCES})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tw_flags ${arg_DEPS})
endfunction()
