local plan = (obj.status or {}).plan or {}
local annotations = obj.metadata.annotations or {}
local prefix = "tuning.storageclient.dev/"
local reboot = ((obj.spec or {}).rollout or {}).reboot or {}
local observed = obj.status ~= nil and obj.status.observedGeneration == obj.metadata.generation

local stalled = false
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    stalled = true
  end
end

local hash = plan.hash or ""
local approved = annotations[prefix .. "approved-plan"] == hash or reboot.approvedPlan == hash
local asks = (reboot.policy or "OnApproval") == "OnApproval"
-- Every other value pauses. Argo CD has no string.lower.
local off = { [""] = true, ["false"] = true, ["False"] = true, ["FALSE"] = true }
local paused = not off[annotations[prefix .. "paused"] or ""]

local actions = {}
actions["approve"] = { ["disabled"] = not (observed and asks and hash ~= "" and not approved) }
actions["pause"] = { ["disabled"] = paused }
actions["resume"] = { ["disabled"] = not paused }
actions["retry"] = { ["disabled"] = not stalled }
return actions
