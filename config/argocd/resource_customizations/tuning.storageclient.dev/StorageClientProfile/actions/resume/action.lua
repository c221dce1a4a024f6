if obj.metadata.annotations ~= nil then
  obj.metadata.annotations["tuning.storageclient.dev/paused"] = nil
end
return obj
